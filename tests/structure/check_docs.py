#!/usr/bin/env python3
"""Checks the documents against the program.

    check_docs.py ROOT flags PROGRAM [PERF [TOPO [OTHERS...]]]
                                       each --flag that stands in a document on a
                                       line (or its continuation) that calls
                                       telegrad-train, or in `backquotes`, is in
                                       PROGRAM --help, or in that of PERF's
                                       subcommands, of TOPO's, or of OTHERS; and
                                       defaults in tables of `| flag | default |` are
                                       those of PROGRAM --help; exits 77 (skipped)
                                       while PROGRAM does not exist
    check_docs.py ROOT paths           no file speaks of the place it was made in
    check_docs.py ROOT width           lines of documents have at most 100 columns,
                                       addresses of the web apart
    check_docs.py ROOT results         each file of perf/results is named in a
                                       document under docs/
    check_docs.py ROOT links           what documents link to exists, and
                                       docs/README.md links to each page of docs/
    check_docs.py ROOT code            blocks of C and C++ in pages that explain a program
                                       are lines of it, in their order
"""
import os
import re
import subprocess
import sys

SKIPPED = 77
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*")
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

# Of ./telegrad, perf/kills and telegrad.run.
OWN_ELSEWHERE = {"--quick", "--cuda", "--piece", "--spare", "--autotune", "--autotune-log"}
# Of horovodrun, torchrun, docker and podman.
FOREIGN_FLAGS = {"--autotune-log-file", "--min-np", "--max-np", "--host-discovery-script",
                 "--max-restarts", "--shm-size", "--cpus"}

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
# Pages that explain a program.
PROGRAM_OF = {"docs/tutorial_cpp.md": "examples/linear_regression.cc",
              "docs/c.md": "examples/push_pull.c"}
BLOCK = re.compile(r"^```c(?:pp)?\n(.*?)^```$", re.M | re.S)


MAX_COLUMNS = 100


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
    known = set(FLAG.findall(help_text)) | {"--help"} | OWN_ELSEWHERE | FOREIGN_FLAGS
    return [f"{path}:{number}: {flag} is not in --help"
            for path in documents(root)
            for number, flag in flags_in_text(read(root, path))
            if flag.replace("_", "-") not in known]  # both are taken


def defaults_in(help_text):
    """{flag: default} of those flags whose default the help shows."""
    return {flag: shown.group(2)
            for shown in re.finditer(r"^ +(?:-\w,)?(--[^ ]+) (?:\S| (?! ))*?=(\S+)", help_text, re.M)
            for flag in shown.group(1).split(",")}


def same(one, other):
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def wrong_defaults(root, help_text):
    shown = defaults_in(help_text)
    found = []
    for path in documents(root):
        is_table = False
        for number, line in enumerate(read(root, path).splitlines(), 1):
            is_table = line.startswith("| flag | default |") or (
                is_table and line.startswith("|"))
            if not is_table:
                continue
            flags, cell = FLAG.findall(line.split("|")[1]), line.split("|")[2]
            stated = [each.strip(" `") for each in cell.split(",")]
            if len(stated) != len(flags):
                stated = [cell.strip(" `")] * len(flags)
            found += [f"{path}:{number}: the default of {flag} is {shown[flag]}, not '{each}'"
                      for flag, each in zip(flags, stated)
                      if flag in shown and not same(shown[flag], each)]
    return found


def places(root):
    return [f"{path}:{number}: speaks of the place it was made in"
            for path in files_of(root) if not PLACES_ALLOWED.match(path)
            for number, line in enumerate(read(root, path).splitlines(), 1)
            if PLACES.search(line)]


def long_lines(root):
    return [f"{path}:{number}: more than {MAX_COLUMNS} columns"
            for path in files_of(root) if path.endswith(".md")
            for number, line in enumerate(read(root, path).splitlines(), 1)
            if len(re.sub(r"https?://\S+", "", line)) > MAX_COLUMNS]


def uncited_results(root):
    text = "".join(read(root, path) for path in documents(root))
    return [f"{path}: no document names this file"
            for path in files_of(root) if path.startswith("perf/results/")
            and os.path.basename(path) not in text]


def broken_links(root):
    found = []
    linked = set()
    for path in files_of(root):
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if "://" in target:
                    continue
                aim = os.path.normpath(os.path.join(os.path.dirname(path), target))
                if not os.path.exists(os.path.join(root, aim)):
                    found.append(f"{path}:{number}: {target} does not exist")
                if path == "docs/README.md":
                    linked.add(aim)
    for path in documents(root):
        if os.path.dirname(path) == "docs" and path != "docs/README.md" and (
                path not in linked):
            found.append(f"{path}: docs/README.md does not link to it")
    return found


def foreign_code(root):
    found = []
    for page, program in PROGRAM_OF.items():
        code = [line.strip() for line in read(root, program).splitlines()]
        text = read(root, page)
        start = 0
        for block in BLOCK.finditer(text):
            lines = [line.strip() for line in block.group(1).splitlines()]
            places = [i for i in range(start, len(code) - len(lines) + 1)
                      if code[i:i + len(lines)] == lines]
            if places:
                start = places[0] + len(lines)
            else:
                number = text.count("\n", 0, block.start()) + 1
                found.append(f"{page}:{number}: not the next lines of {program}")
        if start == 0:
            found.append(f"{page}: shows nothing of {program}")
    return found


def help_of(command):
    return subprocess.run([*command, "--help"], capture_output=True, text=True,
                          timeout=60, check=True).stdout


def main():
    if 4 <= len(sys.argv) and sys.argv[2] == "flags":
        if not os.access(sys.argv[3], os.X_OK):
            print(f"skipped: {sys.argv[3]} is not in this build")
            sys.exit(SKIPPED)
        shown = help_of([sys.argv[3]])
        found = wrong_defaults(sys.argv[1], shown)
        for perf in sys.argv[4:5]:
            for command in SUBCOMMAND.findall(help_of([perf])):
                shown += help_of([perf, command])
        for topo in sys.argv[5:6]:
            for command in ("show", "doctor", "plan", "simulate"):
                shown += help_of([topo, command])
        for program in sys.argv[6:]:
            shown += help_of([program])
        found += unknown_flags(sys.argv[1], shown)
    elif len(sys.argv) == 3 and sys.argv[2] == "paths":
        found = places(sys.argv[1])
    elif len(sys.argv) == 3 and sys.argv[2] == "width":
        found = long_lines(sys.argv[1])
    elif len(sys.argv) == 3 and sys.argv[2] == "results":
        found = uncited_results(sys.argv[1])
    elif len(sys.argv) == 3 and sys.argv[2] == "links":
        found = broken_links(sys.argv[1])
    elif len(sys.argv) == 3 and sys.argv[2] == "code":
        found = foreign_code(sys.argv[1])
    else:
        sys.exit(__doc__)
    print("\n".join(found) or "no complaints")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
