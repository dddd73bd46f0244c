#!/usr/bin/env python3
"""Manuals: every public function and every option has its place in one, and none is there that does not exist.

Functions are those that gcc finds in the public headers, not those that tools/manuals.py finds. Pages are checked by
mandoc and groff, which must have nothing to warn of.
usage: test_manuals.py MAN3
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES = pathlib.Path(os.environ["HALAGE_SOURCE_DIR"])
BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
MAN1 = SOURCES / "docs" / "man"
MAN3 = pathlib.Path(sys.argv.pop(1))
KINDS = {("halage", "node"): ["prefill", "decode"], ("halage", "perf"): ["serve", "run", "layer"]}
ALWAYS = {"--help", "--usage", "--version"}


def run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True)


def public_functions():
    """{name: header} of what gcc finds declared below include/halage."""
    found = {}
    for header in sorted((SOURCES / "include" / "halage").rglob("*.h")):
        with tempfile.TemporaryDirectory() as folder:
            info = pathlib.Path(folder) / "info"
            done = run("gcc", "-std=c17", f"-I{SOURCES / 'include'}", "-fsyntax-only", "-aux-info", info, "-x", "c", header)
            if done.returncode != 0:
                raise AssertionError(done.stderr)
            for line in info.read_text().splitlines():
                match = re.match(r"/\* (\S+?):\d+:\w+ \*/ .*?\b(hlg_\w+) \(", line)
                if match and pathlib.Path(match.group(1)) == header:
                    found[match.group(2)] = header.relative_to(SOURCES / "include").as_posix()
    return found


def sections(page):
    """{title: text} of the `.SS` of section OPTIONS."""
    options = page.read_text().split("\n.SH OPTIONS\n")[1].split("\n.SH ")[0]
    parts = re.split(r"\n\.SS (.*)\n", options)
    return dict(zip(parts[1::2], parts[2::2]))


def options_of_page(text):
    """Options that a tag (the line after .TP) of the text names."""
    found = set()
    for tag in re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE):
        plain = re.sub(r'\\f.|\\c|"', "", tag).replace("\\-", "-")
        found |= {word.split("=")[0] for word in re.findall(r"(?<![\w-])(?:--[a-z][\w-]*|-[a-z](?![\w-]))", plain)}
    return found


def options_of_help(*command):
    done = run(BIN / command[0], *command[1:], "--help")
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} --help: {done.stderr}")
    found = set()
    for line in done.stdout.splitlines():
        match = re.match(r"^ {1,7}(-\w(?=[ ,])|--[a-z]).*", line)
        if match:
            words = re.split(r" {2,}", line.strip())[0]
            names = re.findall(r"(?<![\w-])(--[a-z][\w-]*|-[a-zA-Z?])", words)
            found |= set(names)
    return {name for name in found if name not in ALWAYS and name not in ("-?", "-V")}


def commands(program):
    text = run(BIN / program, "--help").stdout.split("Commands:\n")[1]
    return re.findall(r"^  (\w+)", text, re.MULTILINE)


class Functions(unittest.TestCase):
    def test_every_function_has_a_page(self):
        functions = public_functions()
        self.assertGreater(len(functions), 200)
        pages = {path.stem for path in MAN3.glob("hlg_*.3")}
        self.assertEqual(pages - set(functions), set(), "pages of functions that are none")
        self.assertEqual(set(functions) - pages, set(), "functions without a page")
        for name, header in functions.items():
            link = (MAN3 / f"{name}.3").read_text()
            page = MAN3.parent / link.removeprefix(".so ").strip()
            text = page.read_text()
            self.assertIn(f"#include <{header}>", text.replace("\\-", "-"), name)
            self.assertRegex(text, rf"(?m)^\.B {name}\(\)$", name)
            self.assertRegex(text.split(".SH SYNOPSIS")[0], rf"\b{name}\b")
            self.assertNotRegex(text, rf"(?m)^\.B {name}\(\)\n\.EX$", f"{header}: {name} has no comment")

    def test_pages_are_made_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            date = re.search(r"HALAGE_DATE (\S+)\)", (SOURCES / "CMakeLists.txt").read_text()).group(1)
            version = run(BIN / "halage", "--version").stdout.split()[1]
            done = run(SOURCES / "tools" / "manuals.py", "--version", version, "--date", date, "--out", folder,
                       SOURCES / "include")
            self.assertEqual(done.returncode, 0, done.stderr)
            for path in MAN3.glob("*.3"):
                self.assertEqual(path.read_text(), (pathlib.Path(folder) / path.name).read_text(), path.name)

    def test_no_comment_is_lost(self):
        """Each word of each comment before a function is on the page of its header."""
        for header in sorted((SOURCES / "include" / "halage").rglob("*.h")):
            page = MAN3 / ("halage_" + header.relative_to(SOURCES / "include" / "halage").as_posix()[:-2].replace("/", "_") + ".3")
            text = re.sub(r"\\\[u[0-9a-f]{4}\]|\\\(..|\\[&e]", " ", page.read_text().replace("\\-", "-").lower())
            words = set(re.findall("[a-z]{3,}", text))
            for comment in re.findall(r"/\*(.*?)\*/", header.read_text(), re.DOTALL):
                for word in re.findall(r"[a-z]{3,}", comment.lower()):
                    self.assertTrue(word in words, f"{header.name}: '{word}' of: {comment.strip()[:60]}")


class Programs(unittest.TestCase):
    def test_versions(self):
        version = run(BIN / "halage", "--version").stdout.strip()
        for page in MAN1.glob("*.1"):
            text = page.read_text()
            if not text.startswith(".so "):
                self.assertIn(f'"{version}"', text, page.name)

    def check_program(self, program):
        page = MAN1 / f"{program}.1"
        parts = sections(page)
        used = set()
        for command in commands(program):
            titles = [t for t in parts if re.search(rf"\b{command}\b", t)]
            kinds = KINDS.get((program, command), [])
            words = [[program, command, kind] for kind in kinds] or [[program, command]]
            wanted = set().union(*(options_of_help(*w) for w in words))
            there = set().union(set(), *(options_of_page(parts[t]) for t in titles))
            own = MAN1 / f"{program}-{command}.1"
            if own.exists():
                text = own.read_text().split("\n.SH OPTIONS\n")[1].split("\n.SH ")[0]
                self.assertEqual(options_of_page("\n" + text) - wanted - ALWAYS, set(), f"{own.name}: no such options")
                there |= options_of_page("\n" + text)
            self.assertEqual(wanted - there, set(), f"options of '{program} {command}' that {page.name} does not have")
            used |= wanted
            self.assertRegex(page.read_text().replace("\\-", "-"), rf"(?m)^\.B {program} {command}\b",
                             f"{page.name} does not describe {command}")
        for title, text in parts.items():
            self.assertEqual(options_of_page(text) - used, set(), f"{page.name}, {title}: options that there are not")

    def test_halage(self):
        self.check_program("halage")

    def test_halage_sim(self):
        if "without SimGrid" in run(BIN / "halage-sim", "--version").stdout:
            self.skipTest("built without SimGrid")
        self.check_program("halage-sim")

    def test_node_programs(self):
        """halage-prefill and halage-decode are what `halage node` starts: their manual is its."""
        options = options_of_page((MAN1 / "halage.1").read_text())
        for program in ("halage-prefill", "halage-decode"):
            self.assertEqual((MAN1 / f"{program}.1").read_text(), ".so man1/halage.1\n")
            self.assertEqual(options_of_help(program) - options, set())
            self.assertIn(program, (MAN1 / "halage.1").read_text().split(".SH SYNOPSIS")[0].replace("\\-", "-"))


class Lint(unittest.TestCase):
    def pages(self):
        return sorted(p for folder in (MAN1, MAN3) for p in folder.glob("*.[13]") if not p.read_text().startswith(".so "))

    def test_mandoc(self):
        if shutil.which("mandoc") is None:
            self.skipTest("there is no mandoc: run tools/setup")
        done = run("mandoc", "-T", "lint", "-W", "warning", *self.pages())
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_groff(self):
        if shutil.which("groff") is None:
            self.skipTest("there is no groff: run tools/setup")
        done = run("groff", "-man", "-ww", "-z", "-T", "utf8", *self.pages())
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
