"""The agent of one host, and what connects it to here."""
from __future__ import annotations

import json
import os
import select
import subprocess
from typing import Any, Dict, Iterator, List, Optional

from .agent_words import source

_MOST_NOISE = 20  # lines of what a connection itself says


class Channel:
    """Not started before `open`. Messages are read when `descriptors` say so."""

    def __init__(self, host: str, words: List[str]) -> None:
        self.host, self.words = host, words
        self.is_ready = False  # the agent has said hello
        self.is_asked = False  # for what it finds there, which are
        self.facts: Optional[Dict[str, Any]] = None
        self.noise: List[str] = []
        self._started: Optional[subprocess.Popen] = None
        self._rest = {1: b"", 2: b""}

    def open(self) -> None:
        # A Ctrl-C in the terminal is the launcher's alone.
        self._started = subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, bufsize=0)
        self._send(source())

    @property
    def is_open(self) -> bool:
        return self._started is not None

    def descriptors(self) -> Dict[int, int]:
        """descriptor -> 1 of messages, 2 of what the connection says."""
        started = self._started
        assert started is not None and started.stdout and started.stderr
        return {started.stdout.fileno(): 1, started.stderr.fileno(): 2}

    def tell(self, **message: Any) -> None:
        self._send((json.dumps(message) + "\n").encode())

    def _send(self, data: bytes) -> None:
        assert self._started is not None and self._started.stdin
        view = memoryview(data)
        try:
            while view:
                view = view[self._started.stdin.write(view):]
        except (OSError, ValueError):
            pass  # its end is seen where it is read

    def read(self, descriptor: int, stream: int) -> Optional[List[str]]:
        """Lines; None at the end."""
        data = os.read(descriptor, 1 << 16)
        *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
        if not data and self._rest[stream]:
            lines, self._rest[stream] = [*lines, self._rest[stream]], b""
        elif not data:
            return None
        return [line.decode("utf-8", "replace") for line in lines]

    def messages(self, lines: List[str]) -> Iterator[Dict[str, Any]]:
        """What is none, such as a shell's greeting, is noise."""
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if isinstance(message, dict) and "kind" in message:
                yield message
            else:
                self.note(line)

    def note(self, line: str) -> None:
        if line.strip() and len(self.noise) < _MOST_NOISE:
            self.noise.append(line.strip())

    def wait_for_noise(self, seconds: float) -> None:
        """What a connection says may come after its end is seen."""
        started = self._started
        assert started is not None and started.stderr
        if select.select([started.stderr], [], [], seconds)[0]:
            for line in self.read(started.stderr.fileno(), 2) or []:
                self.note(line)

    def close(self) -> None:
        """The agent ends what is left when its input ends."""
        started = self._started
        if started is None:
            return
        if started.stdin:
            try:
                started.stdin.close()
            except OSError:
                pass

    def wait(self, seconds: float) -> Optional[int]:
        if self._started is None:
            return 0
        try:
            code = self._started.wait(seconds)
        except subprocess.TimeoutExpired:
            self._started.kill()
            code = self._started.wait()
        for pipe in (self._started.stdout, self._started.stderr):
            if pipe:
                pipe.close()
        return code

    def why(self) -> str:
        """Why it has ended, in a line."""
        if self.noise:
            return self.noise[-1]
        return f"{self.words[0]} ended with {self._started.poll() if self._started else '?'}"
