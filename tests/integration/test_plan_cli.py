#!/usr/bin/env python3
"""`halage plan` as a user calls it: the examples of docs/layouts.md word for word, the JSON against
its own sums, and one line for each kind of bad input."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

HALAGE = pathlib.Path(os.environ["HALAGE_BIN_DIR"]) / "halage"
SOURCE = pathlib.Path(os.environ["HALAGE_SOURCE_DIR"])
DOCUMENT = SOURCE / "docs" / "layouts.md"

GROUP = "{planes: 2, heads: 8, head_bytes: 128, page_tokens: 16}"
CONTEXT = "{kind: context, head_bytes: 4096}"
LAYOUT_KEYS = "tp, stages, pools, layers, ranks, all_reduce, piece_bytes_max, stage_layers, groups"
GROUP_KEYS = "kind, planes, heads, head_bytes, page_tokens, arrangement, page_count, layers"


def layout(tp=4, group=GROUP, more="", context=True):
    groups = f"  - {group}\n" + (f"  - {CONTEXT}\n" if context else "")
    return f"tp: {tp}\nlayers: 61\n{more}groups:\n{groups}"


class Plan(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def halage(self, *words):
        return subprocess.run(
            [HALAGE, *words], cwd=self.directory, capture_output=True, text=True, timeout=30,
            check=False,
        )

    def plan(self, source, target, *words):
        self.write("s.yaml", source)
        self.write("t.yaml", target)
        return self.halage("plan", "--source", "s.yaml", "--target", "t.yaml", *words)

    def expect_error(self, result, status, line):
        self.assertEqual(result.stderr, line + "\n")
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.returncode, status)

    def test_the_document_shows_what_the_program_prints(self):
        text = DOCUMENT.read_text(encoding="utf-8")
        for name, body in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", text, re.DOTALL):
            self.write(name, body)
            if name.startswith("examples/"):  # shipped as it is shown
                self.assertEqual((SOURCE / name).read_text(encoding="utf-8"), body)
        examples = re.findall(r"```console\n\$ halage (.*?)\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(examples), 4)
        for command, output in examples:
            result = self.halage(*command.split())
            self.assertEqual(result.stdout + result.stderr, output, command)

    def test_the_readme_command_works_as_it_stands(self):
        text = (SOURCE / "README.md").read_text(encoding="utf-8")
        commands = re.findall(r"^ +build/dev/bin/halage (plan .*)$", text, re.MULTILINE)
        self.assertEqual(len(commands), 1)
        result = subprocess.run([HALAGE, *commands[0].split()], cwd=SOURCE, capture_output=True, text=True, timeout=30,
                                check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("expected pieces:\n", result.stdout)

    def test_json_says_the_same_as_its_slices(self):
        cases = [
            (layout(4), layout(8), 0),
            (layout(8), layout(2), 3),
            (layout(2, more="stage_layers: [20, 0, 41]\n"), layout(4, more="stages: 2\n"), 1),
            (layout(4, GROUP.replace("}", ", arrangement: NHD}")),
             layout(1, GROUP.replace("}", ", arrangement: NHD}"), "piece_bytes_max: 100\n"), 0),
        ]
        for source, target, offset in cases:
            self.plan(source, target, "--tokens", "161", "--replica", str(offset), "--json", "p")
            plan = json.loads((self.directory / "p").read_text(encoding="utf-8"))
            pages = [group["source"]["pages"] for group in plan["groups"]]
            self.assertEqual(pages, [10, 1])
            counts = {}
            moved = {}
            for piece in plan["slices"]:
                key = (piece["target_rank"], piece["group"])
                counts[key] = counts.get(key, 0) + piece["count"] * pages[piece["group"]]
                page = (*key, piece["layer"], piece["plane"])
                moved[page] = moved.get(page, 0) + piece["count"] * piece["bytes"]
            for expected in plan["expected"]:
                rank = expected["target_rank"]
                self.assertEqual(expected["pieces"], counts.get((rank, 0), 0))
                self.assertEqual(expected["context_pieces"], counts.get((rank, 1), 0))
            for (_, group, _, _), size in moved.items():
                self.assertEqual(size, plan["groups"][group]["target"]["page_bytes"])

    def test_the_golden_example(self):
        result = self.plan(layout(4), layout(8), "--tokens", "161", "--json", "-")
        self.assertEqual(result.returncode, 0)
        self.assertIn("target rank 7: 1220, context 1\n", result.stderr)
        plan = json.loads(result.stdout)
        self.assertEqual(plan["replica_offsets"], 4)
        self.assertEqual(
            plan["expected"],
            [{"target_rank": t, "pieces": 1220, "context_pieces": 1} for t in range(8)],
        )
        self.assertEqual(
            [s for s in plan["slices"] if s["target_rank"] == 3 and s["layer"] in (0, 61)],
            [
                {"source_rank": 1, "target_rank": 3, "group": 0, "layer": 0, "plane": plane,
                 "source_offset": 2048, "target_offset": 0, "bytes": 2048, "count": 1,
                 "source_stride": 4096, "target_stride": 2048} for plane in (0, 1)
            ] + [
                {"source_rank": 3, "target_rank": 3, "group": 1, "layer": 61, "plane": 0,
                 "source_offset": 0, "target_offset": 0, "bytes": 4096, "count": 1,
                 "source_stride": 4096, "target_stride": 4096}
            ],
        )

    def test_one_token_moves_nothing(self):
        result = self.plan(layout(4), layout(8), "--tokens", "1", "--json", "-")
        for expected in json.loads(result.stdout)["expected"]:
            self.assertEqual((expected["pieces"], expected["context_pieces"]), (0, 0))

    def test_a_node_that_hosts_some_ranks_sends_their_part(self):
        both = []
        for ranks in ("0-1", "2-3"):
            result = self.plan(layout(4, more=f"ranks: {ranks}\n"), layout(8), "--tokens", "17",
                               "--json", "-")
            both.append([e["pieces"] for e in json.loads(result.stdout)["expected"]])
        self.assertEqual(both, [[122] * 4 + [0] * 4, [0] * 4 + [122] * 4])

    def test_bad_files_are_named_with_key_value_and_remedy(self):
        good = layout()
        cases = [
            ("tpp: 4\n", f"line 1: unknown key 'tpp'; valid keys: {LAYOUT_KEYS}"),
            (layout(group="{head: 8}"), f"unknown key 'head' in groups; valid keys: {GROUP_KEYS}"),
            (layout(tp="[1]"), "line 1: tp: the wrong shape; write one value"),
            (layout(tp="eight"), "tp: 'eight': write a whole number below 2^32"),
            (layout(tp="-1"), "tp: '-1': write a whole number below 2^32"),
            (layout(tp="4294967296"), "tp: '4294967296': write a whole number below 2^32"),
            (layout(tp="65"), "tp: 65 is out of range; it must be 1 to 64"),
            ("layers: 3\n", "tp: missing; write a whole number below 2^32"),
            ("tp: 1\nlayers: 3\n", "groups: missing; list at least one group"),
            ("tp: 1\ntp: 2\n", "tp: the key is there twice; keep one"),
            (layout(group="{heads: 8}"),
             "head_bytes (group 0): missing; write a whole number below 2^32"),
            (layout(group=GROUP.replace("}", ", arrangement: HDN}")),
             "arrangement (group 0): 'HDN': write HND or NHD"),
            (layout(group=GROUP.replace("}", ", layers: [61]}")),
             "layers (group 0): '61': a group's layers are below the layers of the model"),
            (layout(group=GROUP.replace("}", ", layers: [9-8]}")),
             "layers (group 0): '9-8': write a number, or the first and last one as 0-7"),
            (layout(more="stage_layers: [30, 30]\n"),
             "stage_layers: '60': its sum must equal layers"),
            (layout(more="ranks: 2-4\n"), "ranks: '2-4': ranks are below tp * stages"),
            ("", "the file is empty"),
            (layout() + "---\ntp: 1\n", f"line {layout().count(chr(10)) + 1}: a second document begins, and a file is "
             "read as one: take out the line '---'"),
            ("layers: 3\ntp: ~\n", "line 2: tp has no value: write one, in quotes where the word is meant, or take "
             "the key out"),
            ("tp: 1\nlayers: 3\ngroups:\n  - {heads: 8, layers: [1, null]}\n", "line 4: layers has no value: write "
             "one, in quotes where the word is meant, or take the key out"),
            ("[", "the file: the wrong shape; write keys with values, one a line"),
            ("{{tp: 1}: 2}", "a key is no plain word; write keys with values, one a line"),
            ('tp: "', "not YAML: found unexpected end of stream"),
        ]
        for text, line in cases:
            with self.subTest(text):
                self.expect_error(self.plan(text, good, "--tokens", "2"), 2,
                                  f"halage plan: s.yaml: {line}")
                self.expect_error(self.plan(good, text, "--tokens", "2"), 2,
                                  f"halage plan: t.yaml: {line}")
        self.expect_error(
            self.halage("plan", "--source", "none.yaml", "--target", "t.yaml", "--tokens", "2"), 2,
            "halage plan: none.yaml: cannot be opened: No such file or directory")
        self.expect_error(
            self.halage("plan", "--source", ".", "--target", "t.yaml", "--tokens", "2"), 2,
            "halage plan: .: cannot be read: Is a directory")

    def test_what_cannot_work_is_refused(self):
        cases = [
            (layout(3), "s.yaml: heads: 8 (group 0) against tp 3; one must divide the other"),
            (layout(context=False), "groups: source 1, target 2; the two must be equal"),
            (layout(group=GROUP.replace("16", "64")),
             "page_tokens: source 64, target 16 (group 0); the two must be equal"),
        ]
        for text, line in cases:
            self.expect_error(self.plan(text, layout(), "--tokens", "2"), 3,
                              f"halage plan: {line}")

    def test_help_is_a_command_too(self):
        for words in ([], ["plan"], ["node", "prefill"]):
            said = self.halage("help", *words)
            self.assertEqual((said.returncode, said.stderr), (0, ""))
            self.assertEqual(said.stdout, self.halage(*words, "--help").stdout)

    def test_bad_command_lines_take_one_line(self):
        options = "--source --target --tokens --replica --json --help --version"
        cases = [
            ([], "halage: no command; valid:"),
            (["plam"], "halage: unknown command 'plam'; valid:"),
            (["help", "plam"], "halage: unknown command 'plam'; valid:"),
            (["help", "a", "b", "c"], "halage: help: too many words; write 'halage help [COMMAND]'"),
            (["--plan"], "halage: unknown option '--plan'; valid: --help --version"),
            (["plan", "--sauce", "x"], f"halage plan: unknown option '--sauce'; valid: {options}"),
            (["plan", "--tok=3"], f"halage plan: unknown option '--tok=3'; valid: {options}"),
            (["plan", "--tokens"], "halage plan: option '--tokens' needs a value: N"),
            (["plan", "--tokens", "0"],
             "halage plan: --tokens: '0': write a whole number, 1 to 16777216"),
            (["plan", "x"], "halage plan: unknown argument 'x'; there are only options, see --help"),
            (["plan"], "halage plan: --source, --target and --tokens must all be given"),
        ]
        for words, line in cases:
            result = self.halage(*words)
            if line.endswith("valid:"):  # commands follow, and their list grows
                self.assertRegex(result.stderr, f"^{line}.* plan.*\n$")
                self.assertEqual(result.returncode, 2)
            else:
                self.expect_error(result, 2, line)
        self.expect_error(self.plan(layout(), layout(8), "--tokens", "2", "--replica", "4"), 2,
                          "halage plan: --replica: 4: this pair has offsets 0 to 3")

    def test_help_and_version(self):
        for words in (["--help"], ["plan", "--help"], ["--version"], ["plan", "-V"], ["node", "--help"],
                      ["node", "-V"]):
            result = self.halage(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("halage", result.stdout)
        self.assertIn("\n  plan ", self.halage("--help").stdout)

    def test_json_that_cannot_be_written_is_a_failure(self):
        result = self.plan(layout(), layout(8), "--tokens", "2", "--json", "no/such/directory")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(
            result.stderr,
            "halage plan: --json: no/such/directory: cannot be opened: No such file or directory\n")


if __name__ == "__main__":
    unittest.main()
