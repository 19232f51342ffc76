"""Prometheus' text format, as Telegrad writes it."""
from __future__ import annotations

import re
from typing import Dict, List, NamedTuple

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """A value with its labels, "role" and "rank" among them."""
    labels: Dict[str, str]
    value: float


def samples_of(text: str) -> Dict[str, List[Sample]]:
    """By name. What is no line of the format is left out."""
    found: Dict[str, List[Sample]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        try:
            value = float(match[3]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            continue
        labels = {name: re.sub(r"\\(.)", r"\1", text)
                  for name, text in _LABEL.findall(match[2] or "")}
        found.setdefault(match[1], []).append(Sample(labels, value))
    return found
