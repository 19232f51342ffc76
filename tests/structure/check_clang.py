#!/usr/bin/env python3
"""Checks that clang reads what GCC has compiled: libFuzzer's targets (tests/fuzz/run.sh) are
built by it, and so is the tree of whoever prefers it.

    check_clang.py ROOT BUILD

BUILD has a compile_commands.json. Kernels, topology, programs and tests are left out, for the time
that they take. Exits 77 (skipped) without clang++, or 1 when CI=true.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
import tempfile

import needs_tool

READ = ("base", "compression", "transport", "kvstore", "trainer/data", "trainer/checkpoint")
HEADER = "-include"


def is_checked(entry, root, build):
    source = entry["file"]
    place = os.path.relpath(source, build if source.startswith(build + os.sep) else root)
    return source.endswith((".cc", ".cxx")) and place.startswith(tuple(f"{one}/" for one in READ))


def arguments(entry):
    """Of the compiler, without its name, what it writes and the header that it has precompiled;
    and that header, or None."""
    given = shlex.split(entry["command"])
    given = given[given[0].endswith("ccache") + 1:]
    at = given.index("-o")
    del given[at:at + 2]
    header = None
    if HEADER in given:
        at = given.index(HEADER)
        header = given[at + 1]
        del given[at:at + 2]
    return [each for each in given if each not in ("-Winvalid-pch", "-Werror")], header


def read(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def precompiled(made, header, given):
    """Keeps a header as clang does, in the file `made`; returns what clang says."""
    at = given.index("-c")
    return read(["clang++", *given[:at], *given[at + 2:], "-w", "-x", "c++-header", header, "-o", made])


def unreadable(root, build):
    """What clang says; empty when all is well."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = [each for each in json.load(file) if is_checked(each, root, build)]
    if not entries:
        return f"no sources of {', '.join(READ)} in {build}/compile_commands.json"
    with tempfile.TemporaryDirectory() as folder:
        headers, commands = {}, []
        for entry in entries:
            given, header = arguments(entry)
            if header is not None and header not in headers:
                headers[header] = os.path.join(folder, f"{len(headers)}.pch")
                complaints = precompiled(headers[header], header, given)
                if complaints:
                    return complaints
            kept = ["-include-pch", headers[header]] if header is not None else []
            commands.append(["clang++", *kept, *given, "-fsyntax-only", "-w"])
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return "".join(pool.map(read, commands))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    needs_tool.end("clang++", lambda: unreadable(*map(os.path.abspath, sys.argv[1:])),
                   "clang reads all")


if __name__ == "__main__":
    main()
