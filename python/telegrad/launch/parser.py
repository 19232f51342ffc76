"""A command line that is refused in one line."""
from __future__ import annotations

import argparse
import difflib
from typing import Any


class Parser(argparse.ArgumentParser):
    """Names a flag that it does not have, and the one that is spelt most like it."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            known = [name for action in self._actions for name in action.option_strings]
            like = difflib.get_close_matches(flag, known, 1)
            self.error(f"no flag '{flag}'" + (f"; did you mean {like[0]}?" if like else ""))
        return found

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help lists all flags)\n")
