"""How an agent is started: Python there reads agent.py from its standard input."""
from __future__ import annotations

import os
from typing import List

SECRET_FILE = "@SECRET_FILE@"  # as in agent.py


def source() -> bytes:
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.py"), "rb") as file:
        return file.read()


def command(python: str) -> List[str]:
    return [python, "-IS", "-c", f"exec(open(0,'rb',closefd=False).read({len(source())}))"]
