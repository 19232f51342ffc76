#!/usr/bin/env python3
"""Checks the documents against the program.

    check_docs.py ROOT flags PROGRAM [PERF [TOPO]]
                                       each --flag that stands in a document on a
                                       line (or its continuation) that calls
                                       telegrad-train, or in `backquotes`, is in
                                       PROGRAM --help, or in that of PERF's
                                       subcommands or of TOPO's; exits 77
                                       (skipped) while PROGRAM does not exist
    check_docs.py ROOT paths           no file speaks of the place it was made in
"""
import os
import re
import subprocess
import sys

SKIPPED = 77
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# As CLI11 lists them.
SUBCOMMAND = re.compile(r"^  ([a-z]+) ", re.M)
# Put together here, so that this file does not hold them.
PLACES = re.compile(r"/wo" + r"rk/|\.\./sha" + r"red")
# The tests' data folder is named there, as a default that may be absent.
PLACES_ALLOWED = re.compile(r"^tests/(\w+/)?CMakeLists\.txt$")
SKIPPED_FOLDERS = re.compile(r"^(build.*|\.git|\.cache|\.deb|__pycache__|"
                             r"telegrad-out.*)$")
# Flags of programs that are not telegrad-train's.
FOREIGN = re.compile(
    r"^\s*(\$\s*)?(cmake|ctest|ninja|git|apt-get|update-alternatives|mpirun|srun"
    r"|clang-format|telegrad-perf|telegrad-topo|telegrad-server)\b")


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not SKIPPED_FOLDERS.match(f)]
        for name in sorted(set(names) - {".git"}):
            path = os.path.relpath(os.path.join(folder, name), root)
            yield path.replace(os.sep, "/")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8",
              errors="replace") as file:
        return file.read()


def flags_in_text(text):
    """Yields (line number, flag) for each flag that is telegrad-train's."""
    in_command = False
    for number, line in enumerate(text.splitlines(), 1):
        calls = re.search(r"telegrad-train|\./telegrad demo", line)
        start = calls.start() if calls else 0
        if calls or in_command:
            for match in FLAG.finditer(line, start):
                yield number, match.group()
        elif not FOREIGN.match(line):
            for quoted in re.finditer(r"`(--[^`]*)`", line):
                for flag in FLAG.findall(quoted.group(1)):
                    yield number, flag
        in_command = bool(calls or in_command) and line.rstrip().endswith("\\")


def documents(root):
    return [path for path in files_of(root) if path.endswith(".md") and (
        path == "README.md" or path.startswith("docs/"))]


def unknown_flags(root, help_text):
    known = set(FLAG.findall(help_text)) | {"--help"}
    # The entry script's own.
    known |= {"--quick"}
    return [f"{path}:{number}: {flag} is not in --help"
            for path in documents(root)
            for number, flag in flags_in_text(read(root, path))
            if flag not in known]


def places(root):
    return [f"{path}:{number}: speaks of the place it was made in"
            for path in files_of(root) if not PLACES_ALLOWED.match(path)
            for number, line in enumerate(read(root, path).splitlines(), 1)
            if PLACES.search(line)]


def help_of(command):
    return subprocess.run([*command, "--help"], capture_output=True, text=True,
                          timeout=60, check=True).stdout


def main():
    if len(sys.argv) in (4, 5, 6) and sys.argv[2] == "flags":
        if not os.access(sys.argv[3], os.X_OK):
            print(f"skipped: {sys.argv[3]} is not in this build")
            sys.exit(SKIPPED)
        shown = help_of([sys.argv[3]])
        for perf in sys.argv[4:5]:
            for command in SUBCOMMAND.findall(help_of([perf])):
                shown += help_of([perf, command])
        for topo in sys.argv[5:]:
            for command in ("show", "doctor", "plan", "simulate"):
                shown += help_of([topo, command])
        found = unknown_flags(sys.argv[1], shown)
    elif len(sys.argv) == 3 and sys.argv[2] == "paths":
        found = places(sys.argv[1])
    else:
        sys.exit(__doc__)
    print("\n".join(found) or "no complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
