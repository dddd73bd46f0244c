"""judge.py tells a run that passed from every kind that did not, without a virtual machine."""

import unittest

import judge

SUITE = judge.Job("suite", 9, "suite", suite_tests=3)
PLAIN = judge.Job("plain", 9, "plain", must_print=(r"all \d+ verified",), must_not_print=(r"[1-9]\d* wrong",))
CONTROL = judge.Job("control", 9, "control", must_fail=True)
JOBS = [SUITE, PLAIN, CONTROL]

GOOD = """\
SeaBIOS\r
@begin suite\r
[==========] Running 3 test(s).\r
[       OK ] a\r
[       OK ] b\r
[       OK ] c\r
[==========] 3 test(s) run.\r
[  PASSED  ] 3 test(s).\r
\r
@end suite status=0 seconds=1.00..2.50\r
@begin plain\r
all 12 verified\r
\r
@end plain status=0 seconds=2.50..3.00\r
@begin control\r
[  FAILED  ] x\r
\r
@end control status=1 seconds=3.00..4.00\r
@over seconds=4.10\r
"""


def faults(text, jobs=None):
    told = []
    count = judge.judge(JOBS if jobs is None else jobs, text, told.append)
    return count, "\n".join(told)


class Judge(unittest.TestCase):
    def test_a_good_run_has_no_fault(self):
        count, told = faults(GOOD)
        self.assertEqual(count, 0, told)
        self.assertIn("suite passed in 1.5 s", told)
        self.assertIn("control failed, as it must", told)

    def assert_spoilt(self, old, new, sentence):
        self.assertIn(old, GOOD)
        count, told = faults(GOOD.replace(old, new, 1))
        self.assertGreater(count, 0, told)
        self.assertIn(sentence, told)

    def test_each_way_to_fail_is_seen(self):
        for old, new, sentence in [
            ("@end suite status=0", "@end suite status=1", "it ended with status 1"),
            ("@end plain status=0", "@end plain status=139", "it ended with status 139"),
            ("all 12 verified", "11 of 12", "it did not print"),
            ("all 12 verified", "2 wrong\r\nall 12 verified", "it printed '2 wrong'"),
            ("@end plain", "@what plain", "it did not end"),
            ("Running 3 test(s)", "Running 2 test(s)", "it ran 2 tests of 3"),
            ("[       OK ] b", "[  FAILED  ] b", "b failed"),
            ("[  PASSED  ] 3", "[  PASSED  ] 2", "2 tests passed of 3"),
            ("[       OK ] b\r", "[  SKIPPED ] b\r", "b was skipped"),
            ("[  PASSED  ] 3 test(s).\r\n", "", "no tests passed"),
            ("@end control status=1", "@end control status=0", "had to fail"),
            ("@end control status=1", "@end control status=137", "had to fail by itself"),
            ("@over", "over", "did not come to its end"),
            ("SeaBIOS", "Kernel panic - not syncing", "the machine said: Kernel panic"),
            ("SeaBIOS", "insmod rdma_rxe.ko failed", "the machine said: insmod"),
            ("SeaBIOS", "BUG: unable to handle page fault", "the machine said: BUG"),
        ]:
            with self.subTest(new=new):
                self.assert_spoilt(old, new, sentence)

    def test_nothing_at_all_is_a_fault_of_every_job(self):
        count, told = faults("")
        self.assertEqual(count, len(JOBS) + 1, told)

    def test_the_script_has_one_line_a_job(self):
        self.assertEqual(judge.script(JOBS).splitlines(), ["job suite 9 suite", "job plain 9 plain", "job control 9 control"])


if __name__ == "__main__":
    unittest.main()
