#!/usr/bin/env python3
"""Checks that every source file is formatted by clang-format.

    check_format.py ROOT

Exits 77 (skipped) without clang-format, or 1 when CI=true.
"""
import os
import shutil
import subprocess
import sys

import check_layers

SKIPPED = 77


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
    if shutil.which("clang-format") is None:
        print("skipped: clang-format is not installed")
        sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)
    complaints = badly_formatted(sys.argv[1])
    print(complaints or "all files are formatted")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
