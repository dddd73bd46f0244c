"""What a run in the virtual machine printed, judged job by job."""

import re
import typing

STOPPED = 137  # what timeout(1) makes of a job that took too long


class Job(typing.NamedTuple):
    name: str
    seconds: int  # within which it must end
    command: str
    must_print: tuple = ()  # regular expressions, each found in its output
    must_not_print: tuple = ()  # likewise, none found
    suite_tests: int = 0  # a program of cmocka: so many tests run, and each passes
    must_fail: bool = False  # a control: it must end, and not succeed


def script(jobs):
    """The jobs as init reads them."""
    return "".join(f"job {job.name} {job.seconds} {job.command}\n" for job in jobs)


def outputs(text):
    """{name: (status, seconds, output)} of the jobs that ended."""
    found = {}
    pattern = r"^@begin (\S+)\n(.*?)^@end \1 status=(\d+) seconds=([\d.]+)\.\.([\d.]+)$"
    for name, output, status, begin, end in re.findall(pattern, text, re.DOTALL | re.MULTILINE):
        found[name] = (int(status), float(end) - float(begin), output)
    return found


def suite_faults(job, output):
    """Why a program of cmocka did not pass, as far as its own lines say."""
    run = re.search(r"\[=+\] Running (\d+) test\(s\)", output) or re.search(r"\[=+\] .*?(\d+) test\(s\) run", output)
    passed = re.search(r"\[  PASSED  \] (\d+) test\(s\)", output)
    ends = set(re.findall(r"^\[  (FAILED|SKIPPED) +\] (\w+)$", output, re.MULTILINE))
    faults = [f"{name} {'failed' if end == 'FAILED' else 'was skipped'}" for end, name in sorted(ends)]
    if run is None or int(run.group(1)) != job.suite_tests:
        faults.append(f"it ran {run.group(1) if run else 'no'} tests of {job.suite_tests}")
    if passed is None or int(passed.group(1)) != job.suite_tests:
        faults.append(f"{passed.group(1) if passed else 'no'} tests passed of {job.suite_tests}")
    return faults


def job_faults(job, ended):
    if job.name not in ended:
        return ["it did not end"]
    status, _, output = ended[job.name]
    if job.must_fail:
        return [f"it ended with status {status}, and had to fail by itself"] if status in (0, STOPPED) else []
    faults = [] if status == 0 else [f"it ended with status {status}"]
    faults += [f"it did not print {wanted!r}" for wanted in job.must_print if not re.search(wanted, output)]
    faults += [f"it printed {found.group()!r}" for pattern in job.must_not_print
               for found in re.finditer(pattern, output)]
    if job.suite_tests:
        faults += suite_faults(job, output)
    return faults


def judge(jobs, text, tell=print):
    """Tell of each job whether it passed. Returns how many faults there are, those of the machine too."""
    text = text.replace("\r", "")
    ended = outputs(text)
    count = 0
    for job in jobs:
        faults = job_faults(job, ended)
        count += len(faults)
        seconds = f" in {ended[job.name][1]:.1f} s" if job.name in ended else ""
        how = "failed, as it must" if job.must_fail else "passed"
        tell(f"rxe: {job.name} {how}{seconds}" if not faults else f"rxe: {job.name}: {'; '.join(faults)}")
    for pattern in (r"Kernel panic.*", r"insmod .* failed", r"BUG: .*", r"Oops.*"):
        for line in re.findall(pattern, text):
            count += 1
            tell(f"rxe: the machine said: {line}")
    if not re.search(r"^@over ", text, re.MULTILINE):
        count += 1
        tell("rxe: the machine did not come to its end")
    return count
