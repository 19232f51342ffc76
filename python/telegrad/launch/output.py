"""What processes print, with who it was in front."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable, Mapping, Optional

_COLOURS = {"scheduler": 35, "server": 33}
_OF_WORKERS = (36, 32, 34, 96, 92, 94)
_BOLD = 1


class Output:
    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._streams = {1: sys.stdout, 2: sys.stderr}
        # Hears what workers write to standard output.
        self.listener: Optional[Callable[[str], None]] = None
        self._is_coloured = {
            number: stream.isatty() and not environ.get("NO_COLOR")
            for number, stream in self._streams.items()}

    def show(self, role: str, rank: int, title: str, stream: int, text: str) -> None:
        if self.listener is not None and (role, stream) == ("worker", 1):
            self.listener(text)
        colour = _COLOURS.get(role, _OF_WORKERS[rank % len(_OF_WORKERS)])
        prefix = self._painted(f"[{title}]", colour, stream)
        self._write(stream, "".join(f"{prefix} {self._last(line)}\n"
                                    for line in text.split("\n")))

    @staticmethod
    def _last(line: str) -> str:
        """Of a line that was written over again and again, what stood there in the end."""
        return line.rstrip("\r").rpartition("\r")[2]

    def of_host(self, host: str, text: str) -> None:
        self._write(2, f"{self._painted(f'[{host}]', _BOLD, 2)} {text}\n")

    def say(self, text: str) -> None:
        self._write(2, f"{self._painted('telegrad-launch:', _BOLD, 2)} {text}\n")

    def _painted(self, text: str, colour: int, stream: int) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._is_coloured[stream] else text

    def _write(self, number: int, text: str) -> None:
        stream: Any = self._streams[number]
        try:
            stream.buffer.write(text.encode("utf-8", "replace"))
            stream.buffer.flush()
        except (OSError, ValueError):
            pass  # nobody reads it; the job's end still counts
