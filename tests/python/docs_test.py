#!/usr/bin/env python3
"""Runs every snippet of a page (docs/, python/README.md) with two ranks: the scripts
from their imports on, what follows a script in the names of that.

    docs_test.py PAGE
"""
import os
import re
import sys
import tempfile

import workers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def scripts(page):
    """Each begins with a block that imports."""
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
    found = []
    for block in blocks:
        if block.startswith("import "):
            found.append(block)
        else:
            found[-1] += block
    return found


def main():
    page = os.path.join(ROOT, "docs", sys.argv[1])
    for module in re.findall(r"^import (numpy|torch)", "".join(scripts(page)), re.M):
        try:
            __import__(module)
        except ImportError as why:
            workers.skip(why)
    found = scripts(page)
    assert found, page
    for script in found:
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(
                "w", suffix=".py") as file:
            os.chdir(folder)  # for what it writes
            file.write(script)
            file.flush()
            environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(workers.free_port()))
            for code, out, err in workers.run_all([[file.name]] * 2, environment):
                print(code, out, err)


if __name__ == "__main__":
    main()
