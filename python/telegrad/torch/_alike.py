"""Settings that all ranks must have alike, and whether they do."""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from ..errors import Mismatch

# Of a group: what it is of, and how, not what, is computed.
_OF_NO_STEP = {"params", "capturable", "differentiable", "foreach", "fused"}


def _plain(value: Any) -> Any:
    """As JSON has it, numbers of NumPy and torch as Python's. Of other objects the class:
    their texts may have addresses, which are each process's own."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    try:
        return _plain(value.item())
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return type(value).__name__


def plain(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """Those that are given, for JSON."""
    return {name: _plain(value) for name, value in settings.items() if value is not None}


def optimizer_settings(name: str, optimizer: Optional[Any]) -> Dict[str, Any]:
    """Its class and, by name, what it steps with, of each group of parameters where these
    differ; nothing of None."""
    groups = getattr(optimizer, "param_groups", [])
    found: Dict[str, Any] = {name: type(optimizer).__name__} if groups else {}
    for option in sorted({option for group in groups for option in group} - _OF_NO_STEP):
        values = [_plain(group.get(option)) for group in groups]
        found[f"{name} {option}"] = values if values != values[:1] * len(values) else values[0]
    return found


def check_alike(settings: List[Dict[str, Any]], ranks: List[int]) -> None:
    """Of the members of a group, `plain`; one that a rank has not given is not compared, and
    a number is as good as its text.

    Args:
        ranks: by which the members are named.

    Raises:
        telegrad.Mismatch: all that differ, each with two ranks and both values.
    """
    texts = []
    for name in dict.fromkeys(name for each in settings for name in each):
        (first, value), *others = [(rank, each[name]) for rank, each in zip(ranks, settings)
                                   if name in each]
        texts += [f"{name}: rank {first} has {value}, rank {rank} has {other}"
                  for rank, other in others if other != value and str(other) != str(value)][:1]
    if texts:
        raise Mismatch("; ".join(texts) + "; give all the same")
