#!/usr/bin/env python3
"""Checks that a new transport touches few files.

    check_transports.py ROOT

A transport is a folder transport/NAME with NAME_transport.h. Prints each file of
the product outside that folder which spells NAME in quotes, unless it is one of the
tables where a transport is entered; exits 1 if there is any.
"""
import os
import re
import sys

# What docs/write_a_transport.md says to touch beside the transport's own folder.
TABLES = (
    "transport/registry.cc",
    "transport/CMakeLists.txt",
    "tests/transport/backends.cc",
    "cmake/TelegradDependencies.cmake",
    "docs/transports.md",
)
# What knows transports by name today. Entries only go; one that is idle is an
# error.
KNOWN = (
    "kvstore/nccl/group_store.cc",
    "perf/network/launch.cc",
    "topology/plan.h",
    "topology/planner/network.cc",
    "topology/planner/network.h",
    "trainer/flags/check_flags.cc",
    "transport/transport.h",
)
PRODUCT = ("base", "kernels", "compression", "transport", "topology", "kvstore",
           "trainer", "perf")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def transports(root):
    folder = os.path.join(root, "transport")
    return sorted(
        name for name in os.listdir(folder)
        if os.path.isfile(os.path.join(folder, name, name + "_transport.h")))


def violations(root, known=KNOWN):
    """(path, name) of each file that names a transport and may not."""
    names = transports(root)
    # What tcp is to others is a word of their libraries.
    own = tuple(f"transport/{name}/" for name in names)
    found = []
    for top in PRODUCT:
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in sorted(files):
                path = os.path.relpath(os.path.join(folder, file), root)
                path = path.replace(os.sep, "/")
                if not file.endswith((".h", ".cc")) or path in TABLES + known:
                    continue
                with open(os.path.join(root, path), encoding="utf-8") as text:
                    code = COMMENT.sub("", text.read())
                found += [(path, name) for name in names
                          if f'"{name}"' in code
                          and not path.startswith(own)]
    return found


def idle(root, known=KNOWN):
    """Those of `known` that name no transport, or are not there."""
    names = transports(root)
    found = []
    for path in known:
        try:
            with open(os.path.join(root, path), encoding="utf-8") as text:
                code = COMMENT.sub("", text.read())
        except FileNotFoundError:
            code = ""
        if not any(f'"{name}"' in code for name in names):
            found.append(path)
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    found = violations(root)
    for path, name in found:
        print(f"{path}: names the transport {name}; ask the registry")
    stale = idle(root)
    for path in stale:
        print(f"{path}: names no transport; take it off the list")
    missing = [table for table in TABLES
               if not os.path.isfile(os.path.join(root, table))]
    for table in missing:
        print(f"{table}: is not there")
    print(f"transports {', '.join(transports(root))}: {len(TABLES)} tables, "
          f"{len(found)} violations")
    sys.exit(1 if found or stale or missing or not transports(root) else 0)


if __name__ == "__main__":
    main()
