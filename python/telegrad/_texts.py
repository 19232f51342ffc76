"""What rank 0 says: what was decided, and what was saved."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple


def decision_text(decisions: List[Dict[str, Any]], workers: int, servers: int,
                  plan: Dict[str, Any], link: str, is_auto: bool = False) -> str:
    """Members, how their data goes, and the codecs with the reason.

    Args:
        decisions: `telegrad.Store.report`.
        plan: `telegrad.Job.plan`.
        link: the emulated one; "none".
        is_auto: the codec of those without a rule is chosen later.
    """
    return (f"{_count(workers, 'worker')}, "
            f"{_count(servers, 'server')} beside them, {_path_text(plan)}"
            + ("" if link == "none" else f", a link emulated as {link}")
            + "; " + codecs_text(decisions, is_auto))


def codecs_text(decisions: List[Dict[str, Any]], is_auto: bool = False) -> str:
    """Of `telegrad.Store.report`, those of one codec and reason together."""
    by_setting: Dict[Tuple[str, str], List[int]] = {}
    for line in decisions:
        reason = line["reason"]
        if line["has_rule"] and reason.startswith("rule ^("):
            reason = "one-dimensional"
        codec = line["codec"]
        if is_auto and not line["has_rule"] and reason.startswith("type "):
            codec, reason = "auto", "it measures before it takes a codec"
        by_setting.setdefault((codec, reason), []).append(line["num_elems"])
    return ", ".join(f"{codec} for {_count(len(sizes), 'tensor')} of {sum(sizes):,} elements "
                     f"({reason})" for (codec, reason), sizes in by_setting.items())


def dense_text(decisions: List[Dict[str, Any]], gc_type: str) -> str:
    """That a codec was asked for and no parameter has one; else ""."""
    if gc_type in ("none", "auto") or any(line["codec"] != "none" for line in decisions):
        return ""
    return (f"nothing is compressed: {gc_type} goes with none of the "
            f"{_count(len(decisions), 'parameter')}, and headers make more bytes than without "
            "Telegrad; dense_1d=False takes those of one dimension, too")


def left_out_text(parameters: Dict[str, Any]) -> str:
    """Which parameters torch sums; "" for none."""
    if not parameters:
        return ""
    kinds = ", ".join(sorted({str(each.dtype) for each in parameters.values()}))
    return (f"{_count(len(parameters), 'parameter')} ({kinds}), first "
            f"{next(iter(parameters))}, as without Telegrad: the store has none")


def _path_text(plan: Dict[str, Any]) -> str:
    made = {decision["what"]: decision for decision in plan["decisions"]}
    if plan["network"] == "local" or "network" not in made:
        return f"{plan['transport']} within one machine"
    reasons = [made["network"]["why"].replace("--transport ", "transport=")]
    if "cards" in made:
        reasons.append("cards " + made["cards"]["choice"])
    return (f"{plan['transport']} over {made['network']['choice']} "
            f"({'; '.join(filter(None, reasons))})")


def _count(num: int, what: str) -> str:
    return f"{num} {what}" + ("" if num == 1 else "s")


def ratio(stats: Dict[str, Any], side: str) -> float:
    """Raw bytes to those that were sent, of "push" or "pull"."""
    wire = stats[f"{side}_wire_bytes"]
    return stats[f"{side}_raw_bytes"] / wire if wire > 0 else 1.0


def bytes_text(stats: Dict[str, Any]) -> str:
    """Of `telegrad.Store.stats`."""
    return ", ".join(
        f"{side}ed {stats[f'{side}_raw_bytes'] / 1e6:.3g} MB as "
        f"{stats[f'{side}_wire_bytes'] / 1e6:.3g} ({ratio(stats, side):.2f}x)"
        for side in ("push", "pull"))


def summary(found: Dict[str, Any]) -> str:
    """Of `State.report` at the end."""
    return (f"rank 0 in {_count(found['steps'], 'step')}: {bytes_text(found)}; waited "
            f"{found['waited_s']:.3g} s for them")
