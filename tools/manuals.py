#!/usr/bin/env python3
"""Make the manual pages of section 3 from the comments of the public headers.

usage: tools/manuals.py --version V --date YYYY-MM-DD --out DIRECTORY [--without HEADER ...] INCLUDE

INCLUDE is the directory that holds halage/*.h. For each header DIRECTORY gets halage_<header>.3, with all of its functions
and types; for each function <function>.3, which is the same page by `.so`. A comment belongs to the
declarations that follow it without an empty line. Equal headers give equal pages.
"""
import argparse
import pathlib
import re
import sys
import textwrap

WIDTH = 78
ITEM = re.compile(r"^(\S+(?:, \S+)*) {2,}(\S.*)$")  # "name   what it is", as in the comments of functions


class Bad(Exception):
    """A header that cannot be read."""


def escape(text, code=False):
    """Text as roff has it. In code every character is itself."""
    text = text.replace("\\", "\\e")
    if code:
        for plain, name in (("-", "\\-"), ("^", "\\(ha"), ("~", "\\(ti"), ("`", "\\(ga"), ("'", "\\(aq")):
            text = text.replace(plain, name)
    else:
        text = re.sub(r"(?<![\w\-])-(?=[\w-])", "\\-", text)
        text = text.replace("^", "\\(ha").replace("~", "\\(ti").replace("`", "\\(ga")
    return "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)


def guard(line):
    return "\\&" + line if line[:1] in (".", "'") else line


def fill(text):
    return [guard(line) for line in textwrap.wrap(escape(text), WIDTH, break_long_words=False, break_on_hyphens=False)]


def code(lines):
    return [".EX"] + [guard(escape(line, code=True)) if line else "" for line in lines] + [".EE"]


def strip_comment(comment):
    """Lines of a comment without its marks and without empty ones at the ends."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment[2:-2].split("\n")]
    lines[0] = lines[0].strip()
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def paragraph(lines):
    """Roff of lines without an empty one between them: code, a list of names, bullets, or text."""
    if all(line.startswith("    ") for line in lines):
        return code(textwrap.dedent("\n".join(lines)).split("\n"))
    out = []
    text = []
    for line in lines + [None]:
        item = line is not None and ITEM.match(line)
        bullet = line is not None and line.startswith("- ")
        if (line is None or item or bullet) and text:
            out += fill(" ".join(text))
            text = []
        if item:
            out += [".TP", f".I {escape(item.group(1), code=True)}"]
            text = [item.group(2)]
        elif bullet:
            out.append(".IP \\(bu 2")
            text = [line[2:]]
        elif line is not None:
            text.append(line.strip())
    return out


def describe(lines):
    """Roff of a comment: its paragraphs."""
    out = []
    part = []
    for line in lines + [""]:
        if line:
            part.append(line)
        elif part:
            block = paragraph(part)
            out += block if block[0].startswith((".TP", ".IP")) and not out else ([".PP"] if out else []) + block
            part = []
    # a paragraph macro directly before another one does nothing, and is warned of
    return [line for i, line in enumerate(out)
            if not (line == ".PP" and out[i + 1].startswith((".TP", ".IP")))]


def end_of(text, at, path):
    """Index behind the declaration that begins at `at`: its `;`, or the `}` of a function."""
    depth = 0
    body = False
    while at < len(text):
        if text.startswith("/*", at):
            at = text.index("*/", at) + 2
            continue
        c = text[at]
        if c in "({[":
            body = body or c == "{" and depth == 0 and text[:at].rstrip().endswith(")")
            depth += 1
        elif c in ")}]":
            depth -= 1
            if depth == 0 and c == "}" and body:
                return at + 1
        elif c == ";" and depth == 0:
            return at + 1
        at += 1
    raise Bad(f"{path}: a declaration does not end")


def without_cplusplus(text):
    """As C sees it."""
    return re.sub(r"#ifdef __cplusplus\n(?:(?!#else|#endif).*\n)*(?:#else\n((?:(?!#endif).*\n)*))?#endif\n",
                  lambda match: match.group(1) or "", text)


def items(text, path):
    """Yield (kind, text, attached): comment, define or declaration; attached: no empty line before it."""
    at = 0
    while True:
        space = re.compile(r"\s*").match(text, at)
        attached = space.group().count("\n") <= 1
        at = space.end()
        if at == len(text):
            return
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            kind = "comment"
        elif text[at] == "#":
            end = re.compile(r"(?:\\\n|[^\n])*").match(text, at).end()
            kind = "define" if re.match(r"#define HLG_|#define hlg_", text[at:end]) else "directive"
        else:
            end = end_of(text, at, path)
            kind = "declaration"
        yield kind, text[at:end], attached
        at = end


def prototype(declaration):
    """The prototype of a function, or None."""
    head = re.sub(r"/\*.*?\*/", "", declaration, flags=re.DOTALL).split("{")[0].strip().rstrip(";").strip()
    if declaration.startswith(("typedef", "_Static_assert", "struct", "enum", "union")) and not re.match(
            r"(struct|enum|union)\s+\w+\s*\**\s*hlg_\w+\(", declaration):
        return None
    match = re.search(r"\b(hlg_[a-z0-9_]+)\s*\(", head)
    if match is None:
        return None
    lines = re.sub(r"^(static inline|extern)\s+", "", head).split("\n")
    return match.group(1), [line.rstrip() for line in textwrap.dedent("\n".join(lines)).split("\n")]


class Header:
    """What a header declares: groups of (comment, functions) and of (comment, types), sections between."""

    def __init__(self, path):
        text = without_cplusplus(path.read_text(encoding="utf-8"))
        self.about = []
        self.functions = []  # ("section", title) or ("group", comment lines, [(name, prototype lines)])
        self.types = []      # raw lines, comments kept
        self.includes = re.findall(r'^#include "(?:halage/)?([\w/]+)\.h"', text, re.MULTILINE)
        comment = None
        behind = False
        first = True
        for kind, body, attached in items(text, path):
            if kind == "comment":
                if first:
                    self.about = strip_comment(body)
                comment = None if first else body
                first = False
                section = re.match(r"/\* -+ (.*?) -+ \*/$", body, re.DOTALL)
                if section:
                    self.functions.append(("section", section.group(1)))
                    comment = None
            elif kind == "directive" or body.startswith("_Static_assert"):
                comment = None
            else:
                self.take(body, comment, attached, behind)
                comment = None
            behind = kind == "declaration" and prototype(body) is not None

    def take(self, body, comment, attached, behind):
        """attached: no empty line before it; behind: a function is what comes before it."""
        found = prototype(body) if not body.startswith("#") else None
        if found is None:
            if self.types and (comment is not None or not attached):
                self.types.append("")
            if comment is not None:
                self.types += comment.split("\n")
            self.types += body.split("\n")
        elif comment is None and attached and behind:
            self.functions[-1][2].append(found)
        else:
            lines = strip_comment(comment) if comment is not None else []
            self.functions.append(("group", lines, [found]))

    def names(self):
        return [name for entry in self.functions if entry[0] == "group" for name, _ in entry[2]]


def first_sentence(lines):
    text = " ".join(line.strip() for line in lines)
    sentence = re.split(r"[.:;](?: |$)", text)[0]
    return sentence[:1].lower() + sentence[1:] if not sentence[:2].isupper() else sentence


def page_name(header):
    """Of halage/<header>.h."""
    return "halage_" + header.replace("/", "_")


def page(name, include, header, version, date):
    names = header.names()
    out = [f'.\\" Made by tools/manuals.py from include/{include}.',
           f'.TH {name.upper()} 3 {date} "halage {version}" "halage Library Manual"', ".SH NAME"]
    out += fill(", ".join([name] + names))[:-1]
    out.append(f"{fill(', '.join([name] + names))[-1]} \\- {escape(first_sentence(header.about))}")
    out += [".SH SYNOPSIS", ".nf", f"\\fB#include <{escape(include, code=True)}>\\fP", ".fi"]
    if names:
        out.append(".PP")
        out.append(".nf")
        for entry in header.functions:
            if entry[0] == "group":
                for _, lines in entry[2]:
                    out += [guard(escape(line, code=True)) for line in lines[:-1]]
                    out.append(guard(escape(lines[-1], code=True)) + ";")
        out.append(".fi")
    out.append(".SH DESCRIPTION")
    out += describe(header.about)
    if names:
        out.append(".SH FUNCTIONS")
    for index, entry in enumerate(header.functions):
        if entry[0] == "section":
            if any(e[0] == "group" for e in header.functions[index + 1:index + 2]):
                out.append(f".SS {escape(entry[1])}")
            continue
        labels = [f"{n}()" for n, _ in entry[2]]
        for position, label in enumerate(labels):
            out.append(".TP" if position == 0 else ".TQ")
            out.append(f".B {label}")
        if entry[1]:
            out += indented(describe(entry[1]))
        else:
            out += code([line for _, lines in entry[2] for line in lines[:-1] + [lines[-1] + ";"]])
    if header.types:
        out += [".SH TYPES AND CONSTANTS"] + code(header.types)
    if header.includes:
        out.append(".SH SEE ALSO")
        others = [f".BR {page_name(other)} (3)" for other in sorted(header.includes)]
        out += [other + "," for other in others[:-1]] + others[-1:]
    return "\n".join(out) + "\n"


def indented(lines):
    """Below the tag of a function: paragraphs stay there, lists one further."""
    if not any(line.startswith((".PP", ".TP", ".IP", ".EX")) for line in lines):
        return lines
    first = next(i for i, line in enumerate(lines) if line.startswith((".PP", ".TP", ".IP", ".EX")))
    head, rest = lines[:first], lines[first:]
    if rest[0] == ".PP":
        rest = rest[1:]
    return (head or ["\\&"]) + [".RS", *( [".PP"] if rest and not rest[0].startswith(".") else []), *rest, ".RE"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--without", action="append", default=[], help="header below halage/ to leave out")
    parser.add_argument("include", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for old in arguments.out.glob("*.3"):
        old.unlink()
    base = arguments.include / "halage"
    for path in sorted(base.rglob("*.h")):
        relative = path.relative_to(base).as_posix()
        if relative in arguments.without:
            continue
        header = Header(path)
        name = page_name(relative[:-2])
        text = page(name, f"halage/{relative}", header, arguments.version, arguments.date)
        (arguments.out / f"{name}.3").write_text(text, encoding="ascii")
        for function in header.names():
            (arguments.out / f"{function}.3").write_text(f".so man3/{name}.3\n", encoding="ascii")


if __name__ == "__main__":
    try:
        main()
    except Bad as error:
        sys.exit(f"manuals: {error}")
