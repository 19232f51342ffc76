#!/usr/bin/env python3
"""Compares what libtelegrad.so exports, and the layout of its structs in C11, C++ and
Python, with the recorded list abi.txt. A change there is a new TELEGRAD_ABI.

    abi_test.py LIBRARY SIZES_IN_C SIZES_IN_CPP
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def exported(library):
    """Names that others can link to, symbols of the linker apart."""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                           stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return sorted(line.split()[-1] for line in lines)


def layout(program):
    return subprocess.run([program], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.splitlines()


def layout_in_python(lines):
    """The same lines, as ctypes has it."""
    import ctypes
    from telegrad import _library
    found = []
    for line in lines:
        name, field = re.match(r"telegrad_(\w+)(?:\.(\w+))?|abi", line).groups()
        if name is None:
            found.append(f"abi {_library.ABI}")
            continue
        struct = getattr(_library, "".join(map(str.capitalize, name.split("_"))))
        if field is None:
            found.append(f"telegrad_{name} has {ctypes.sizeof(struct)} bytes")
        else:
            found.append(f"telegrad_{name}.{field} at {getattr(struct, field).offset}")
    return found


def main():
    library, in_c, in_cpp = sys.argv[1:]
    lines = layout(in_c)
    assert layout(in_cpp) == lines, "C and C++ differ"
    assert layout_in_python(lines) == lines, layout_in_python(lines)
    names = exported(library)
    from telegrad import _library
    assert ["telegrad_" + name for name in sorted(_library.PROTOTYPES)] == names, names
    now = "\n".join(lines + names) + "\n"
    with open(os.path.join(HERE, "abi.txt"), encoding="utf-8") as file:
        recorded = file.read()
    if now != recorded:
        sys.exit(f"recorded:\n{recorded}\nnow:\n{now}")


if __name__ == "__main__":
    main()
