#!/usr/bin/env python3
"""Checks how large things are: files, functions, classes, and the whole.

    check_size.py ROOT

Prints one line per violation, `path:line: rule: text`, and the number of lines of
C++ and CUDA that are neither blank nor comment; exits 1 if anything is too large.
"""
import collections
import os
import re
import sys

from check_layers import SOURCES, source_files, without_comments_and_strings

MAX_FILE = 400
MAX_CLASS_FILE = 600  # the .cc that is named like a class whose methods it has
MAX_FUNCTION = 60
MAX_METHODS = 30
# Product and perf, so that growth is noticed: 68,847 before GPU tensors, further
# store types, Python and networks came; 94,506 before flags were compared at the
# join, early ends named and wrong inputs told (decision 24).
MAX_CODE = 108885

# What is larger, with the size that it may have. Numbers here only go down; an
# entry goes when its code is small enough.
LARGER = {
    ("tests/compression/codec_conformance_test.cc", "function", "TEST_P"): 62,
    ("tests/topology/doctor_machines.h", "function", "DoctorCases"): 150,
}

PRODUCT = ("base", "kernels", "compression", "transport", "topology", "kvstore",
           "trainer", "perf")
BLOCK = re.compile(r"[{};]")
CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s*)?([\w:]+)"
                   r"(?:\s+final)?\s*(?::[^:].*)?$", re.S)
# Annotations that look like calls.
ANNOTATION = re.compile(r"(?<=\s)(?:[A-Z][A-Z_]+|alignas|decltype|noexcept)\s*\([^()]*\)")


class Scope:
    """What a pair of braces encloses."""

    def __init__(self, kind, name, line):
        self.kind, self.name, self.line = kind, name, line
        self.methods = 0
        self.depth = 0  # of parentheses around it
        self.start = 0  # of the text that goes on behind it


def without_templates(text):
    """Without what stands between < and >, innermost first."""
    while True:
        shorter = re.sub(r"<[^<>()]*(?:\([^<>()]*\)[^<>()]*)*>", "", text)
        if shorter == text:
            return text
        text = shorter


def declares_function(header):
    """Whether the text before { or ; declares a function."""
    header = re.sub(r"\b(?:public|private|protected)\s*:", "", header).strip()
    header = ANNOTATION.sub("", without_templates(header))
    if re.match(r"(using|typedef|friend|static_assert|template\s*$|extern\s*$)\b",
                header):
        return False
    # Of a variable what follows = is its value; `operator==` is none.
    before = re.split(r"(?<![=!<>+*/&|^-])(?<!operator)=(?!=)", header)[0]
    return bool(re.search(r"[^\s(,]\s*\(", before))


def is_method(header, class_name):
    """Whether it declares a method that counts: no constructor, destructor, nor
    what the compiler writes or nobody may call."""
    if not declares_function(header):
        return False
    if re.search(r"=\s*(default|delete)\s*$", header):
        return False
    return not re.search(rf"(^|[\s~:]){re.escape(class_name)}\s*\(", header)


def scopes(code):
    """Yields (kind, name, first line, last line, methods) for each class, and for
    each function that is in a namespace or a class."""
    stack = []
    start = 0  # of the text since the last { } ; outside parentheses
    depth = 0  # of parentheses
    for match in re.finditer(r"[{};()]", code):
        token = match.group()
        if token in "()":
            depth += 1 if token == "(" else -1
            continue
        header = re.sub(r"^\s*#.*$", "", code[start:match.start()], flags=re.M)
        if token == "{" and re.match(r"\w", code[match.start() - 1]):
            scope = Scope("value", "", 0)  # of a member: c_{2}
            scope.depth, scope.start, depth = depth, start, 0
            stack.append(scope)
        elif token == "{":
            inner = depth == 0 and (
                not stack or stack[-1].kind in ("namespace", "class"))
            begin = start + len(code[start:]) - len(code[start:].lstrip())
            scope = opened(header, inner, code.count("\n", 0, begin) + 1)
            if inner and scope.kind == "function" and stack:
                count(stack[-1], header)
            scope.depth, depth = depth, 0
            stack.append(scope)
        elif token == "}" and stack:
            scope = stack.pop()
            depth = scope.depth
            if scope.kind in ("class", "function"):
                last = code.count("\n", 0, match.start()) + 1
                yield scope.kind, scope.name, scope.line, last, scope.methods
            if scope.kind == "value":
                start = scope.start
                continue
        elif token == ";" and stack and depth == 0:
            count(stack[-1], header)
        if depth == 0:
            start = match.end()


def count(scope, header):
    if scope.kind == "class" and is_method(header, scope.name):
        scope.methods += 1


def opened(header, inner, line):
    if not inner:
        return Scope("block", "", line)
    text = without_templates(header).strip()
    if re.search(r"\bnamespace\b[^=()]*$|\bextern\s*$", text):
        return Scope("namespace", "", line)
    text = re.sub(r"^.*\b(public|private|protected)\s*:", "", text, flags=re.S)
    found = CLASS.search(text)
    if found and not re.search(r"\benum\b", text) and "(" not in text:
        return Scope("class", found.group(1).split("::")[-1], line)
    if declares_function(header):
        names = re.findall(r"([\w:~]+|operator\S+)\s*\(", text)
        return Scope("function", names[0] if names else "?", line)
    return Scope("block", "", line)


def limit_of_file(path, code):
    stem = os.path.splitext(os.path.basename(path))[0].replace("_", "")
    if path.endswith(".cc") and any(
            name.lower() == stem for name in re.findall(r"\b([A-Z]\w*)::", code)):
        return MAX_CLASS_FILE
    return MAX_FILE


def too_large(root, path):
    """Yields (line, rule, name, size, limit)."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    code = without_comments_and_strings(text)
    lines = text.count("\n")
    limit = limit_of_file(path, code)
    if lines > limit:
        yield lines, "file", "", lines, limit
    for kind, name, first, last, methods in scopes(code):
        if kind == "function" and last - first + 1 > MAX_FUNCTION:
            yield first, "function", name, last - first + 1, MAX_FUNCTION
        if kind == "class" and methods > MAX_METHODS:
            yield first, "class", name, methods, MAX_METHODS


def violations(root, larger=None):
    allowed = LARGER if larger is None else larger
    found = []
    for path in source_files(root):
        for line, rule, name, size, limit in too_large(root, path):
            limit = allowed.get((path, rule, name), limit)
            if size > limit:
                what = "methods" if rule == "class" else "lines"
                found.append((path, line, rule,
                              f"{name} has {size} {what}, at most {limit}".strip()))
    return found


def code_lines(root):
    """Lines that are neither blank nor comment, by room."""
    lines = collections.Counter()
    for path in source_files(root):
        room = path.split("/")[0]
        if room not in PRODUCT or not path.endswith(SOURCES):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        # Only comments are blanked: what is left of a literal is code.
        code = re.sub(r'//[^\n]*|/\*.*?\*/|(R"([^()\\ ]{0,16})\(.*?\)\2"'
                      r'|"(?:\\.|[^"\\\n])*"'
                      r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')",
                      lambda match: match.group(1) or re.sub(
                          r"[^\n]", " ", match.group()), text, flags=re.S)
        lines[room] += sum(1 for line in code.splitlines() if line.strip())
    return lines


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = violations(sys.argv[1])
    for path, line, rule, text in found:
        print(f"{path}:{line}: {rule}: {text}")
    lines = code_lines(sys.argv[1])
    total = sum(lines.values())
    print(", ".join(f"{room} {lines[room]:,}" for room in PRODUCT))
    print(f"{total:,} lines of code in product and perf, at most {MAX_CODE:,}; "
          f"{len(found)} violations")
    sys.exit(1 if found or total > MAX_CODE or total == 0 else 0)


if __name__ == "__main__":
    main()
