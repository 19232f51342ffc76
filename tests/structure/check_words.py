#!/usr/bin/env python3
"""Finds comments that need the line before them to be understood.

    check_words.py ROOT

A comment is a sentence with a subject, or a noun phrase that stands alone: who
reads a field or a function for the first time need not search for what is meant.
So no comment begins with one of BEGINNINGS, whether it stands above a line or
behind one; capitals do not matter, and only the beginning of a comment counts:

    // Of a tensor: relative to the optimizer's.    -> // A tensor's rates, relative to ...
    double compute_s = 0;  // of a step             -> // seconds that a step computes
    // The same for the scheduler.                  -> // Places the scheduler as ...
    float epsilon = 1e-8f;  // as well              -> // Adam and AdamW
    int num_ended_ = 0;  // that have ended         -> // rounds that have ended
    double network_s = 0;  // in which it is busy   -> // seconds in which ...

Product and perf have none. Prints each, `path:line: words: text`; exits 1 if there is any.
"""
import os
import re
import sys

from check_layers import COMMENT_OR_LITERAL, source_files
from check_size import PRODUCT

BEGINNINGS = re.compile(
    r"(?:of|the same|as well|also|that|likewise|those|whose|and (?:this|that|its)"
    r"|so (?:is|are|does|do)|(?:by|for|from|in|of|on|to|with) wh(?:ich|om))\b", re.I)


def comments(text):
    """Yields (line, text) for the first line of each comment of `//`: above code
    the first of several lines, behind code the first of those that are aligned."""
    last = None  # line and column of the comment before, whether it is behind code
    for match in COMMENT_OR_LITERAL.finditer(text):
        if not match.group().startswith("//"):
            continue
        begin = text.rfind("\n", 0, match.start()) + 1
        line = text.count("\n", 0, begin) + 1
        column = match.start() - begin
        is_behind = bool(text[begin:match.start()].strip())
        goes_on = (last is not None and not is_behind and last[0] == line - 1
                   and (last[1] == column or not last[2]))
        if not goes_on:
            yield line, match.group()[2:].strip()
        last = (line, column, last[2] if goes_on else is_behind)


def violations(root):
    """Yields (path, line, text)."""
    for path in source_files(root):
        if path.split("/")[0] not in PRODUCT:
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for line, text in comments(file.read()):
                if BEGINNINGS.match(text):
                    yield path, line, text


def main(root):
    found = list(violations(root))
    for path, line, text in found:
        print(f"{path}:{line}: words: {text}")
    print(f"{len(found)} comments that need the line before them")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
