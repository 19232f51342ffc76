#!/usr/bin/env python3
"""Checks that every source file is formatted by clang-format.

    check_format.py ROOT

Exits 77 (skipped) without clang-format, or 1 when CI=true.
"""
import subprocess
import sys

import check_layers
import needs_tool


def badly_formatted(root):
    """Returns clang-format's complaints; empty when all is well."""
    files = list(check_layers.source_files(root))
    if not files:
        return f"no sources under {root}"
    run = subprocess.run(
        ["clang-format", "--dry-run", "-Werror", "--style=file", *files],
        cwd=root, capture_output=True, text=True, check=False)
    return run.stderr if run.returncode else ""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    needs_tool.end("clang-format", lambda: badly_formatted(sys.argv[1]), "all files are formatted")


if __name__ == "__main__":
    main()
