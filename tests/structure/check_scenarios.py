#!/usr/bin/env python3
"""Checks that each scenario of tests/scenarios/table.py has the tests that show it.

    check_scenarios.py ROOT

Prints each test that is not there, or in no test program, and each row in which docs/scenarios.md
differs; exits 1 if there is any.
"""
import ast
import importlib.util
import os
import re
import sys

PAGE = "docs/scenarios.md"
FOLDER = "tests/scenarios"


def text_of(root, path):
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def load(root):
    """The rows of the table."""
    spec = importlib.util.spec_from_file_location("table", os.path.join(root, FOLDER, "table.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ROWS


def is_in_python(text, case):
    """Whether a class has the test, or has any."""
    name, _, test = case.partition(".")
    for each in ast.parse(text).body:
        if isinstance(each, ast.ClassDef) and each.name == name:
            own = [method.name for method in each.body if isinstance(method, ast.FunctionDef)]
            return test in own if test else any(one.startswith("test") for one in own)
    return False


def is_in_googletest(text, case):
    suite, _, name = case.partition(".")
    return re.search(rf"^(TYPED_)?TEST(_F|_P)?\({suite},\s*{name or '.*'}\)", text, re.M) is not None


def is_registered(root, path):
    """Whether a CMakeLists.txt names the file: a Python test by its theme."""
    folder, name = os.path.split(path)
    word = name[:-len("_test.py")] if name.endswith("_test.py") else name
    while folder:
        text = text_of(root, f"{folder}/CMakeLists.txt")
        if text is not None:
            return re.search(rf"[\s(/]{re.escape(word)}[\s)]", text) is not None
        folder, above = os.path.split(folder)
        word = f"{above}/{word}"
    return False


def missing(root, rows):
    """(number, test, what is wrong)."""
    found = []
    for row in rows:
        if not row.tests:
            found.append((row.number, "", "no test"))
        for test in row.tests:
            path, _, case = test.partition("::")
            text = text_of(root, path)
            is_there = text is not None and (is_in_python if path.endswith(".py") else
                                             is_in_googletest)(text, case)
            if not is_there:
                found.append((row.number, test, "is not there"))
            elif not is_registered(root, path):
                found.append((row.number, test, "is run by no CMakeLists.txt"))
    return found


def unlike_page(root, rows):
    """(number, what is wrong) of the page's table."""
    told = dict(re.findall(r"^\| (\d+) \| ([^|]*) \|", text_of(root, PAGE) or "", re.M))
    wrong = [(row.number, f"{PAGE} says {told.get(str(row.number))!r}, the table {row.fault!r}")
             for row in rows if told.get(str(row.number)) != row.fault]
    numbers = [row.number for row in rows]
    if numbers != list(range(1, len(rows) + 1)):
        wrong.append((0, f"numbers are {numbers}"))
    return wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    rows = load(root)
    found = [f"{number}: {test} {why}" for number, test, why in missing(root, rows)]
    found += [f"{number}: {why}" for number, why in unlike_page(root, rows)]
    print("\n".join([*found, f"{len(rows)} scenarios, {len(found)} violations"]))
    sys.exit(1 if found or not rows else 0)


if __name__ == "__main__":
    main()
