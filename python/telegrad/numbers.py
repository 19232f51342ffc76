"""What was sent and saved, for whoever draws curves; named as in docs/numbers.md."""
from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .errors import UsageError

# Of `report()` or `stats()`; what is not there is left out.
_NUMBERS = ("steps", "workers", "push_raw_bytes", "push_wire_bytes", "pull_raw_bytes",
            "pull_wire_bytes", "num_nonfinite")


def numbers_of(source: Any) -> Dict[str, float]:
    """Of this rank so far: the fields of summary.json in docs/numbers.md that there are,
    and ``push_ratio``, ``pull_ratio``, ``ratio`` (raw / wire bytes, both ways).

    Args:
        source: what `telegrad.torch.compress` gives, a `telegrad.torch.DiLoCo`, a
            `telegrad.Store` or a KVStore; or the dictionary that one of them reports.
    """
    if isinstance(source, dict):
        found = source
    else:
        stats = getattr(source, "stats", None) or getattr(source, "report", None)
        if not callable(stats):
            raise UsageError(f"{type(source).__name__} has no numbers: give what "
                             "telegrad.torch.compress gives, a store or a KVStore")
        found = stats()
    numbers = {name: float(found[name]) for name in _NUMBERS if name in found}
    if "waited_s" in found:
        numbers["comm_wait_s"] = float(found["waited_s"])
    for name, sides in (("push_ratio", ["push"]), ("pull_ratio", ["pull"]),
                        ("ratio", ["push", "pull"])):
        raw, wire = (sum(numbers.get(f"{side}_{kind}_bytes", 0) for side in sides)
                     for kind in ("raw", "wire"))
        if wire > 0:
            numbers[name] = raw / wire
    return numbers


def _to_tensorboard(writer: Any, numbers: Dict[str, float], step: Optional[int]) -> None:
    for name, value in numbers.items():
        writer.add_scalar(name, value, step)


# A method that only they have -> how it is called.
_WRITERS: Dict[str, Callable[[Any, Dict[str, float], Optional[int]], Any]] = {
    "add_scalar": _to_tensorboard,  # torch.utils.tensorboard.SummaryWriter
    "log_metrics": lambda mlflow, numbers, step: mlflow.log_metrics(numbers, step=step),
    "log": lambda run, numbers, step: run.log(numbers, step=step),  # wandb, or its run
}


def log_numbers(source: Any, to: Any, step: Optional[int] = None,
                prefix: str = "telegrad/") -> Dict[str, float]:
    """Hands `numbers_of` the source to a writer, each name behind `prefix`::

        telegrad.log_numbers(state, SummaryWriter(), step)
        telegrad.log_numbers(state, wandb, step)        # or mlflow
        telegrad.log_numbers(state, print)              # called with a dictionary

    Args:
        to: a TensorBoard writer, ``wandb`` or a run of it, ``mlflow``, a Lightning
            logger, or a callable.
        step: of the training; a callable gets it as a second argument unless it is None.

    Returns:
        What was handed on.
    """
    numbers = {prefix + name: value for name, value in numbers_of(source).items()}
    for method, write in _WRITERS.items():
        if callable(getattr(to, method, None)):
            write(to, numbers, step)
            return numbers
    if not callable(to):
        raise UsageError(f"{type(to).__name__}: it has none of {', '.join(_WRITERS)}, and "
                         "cannot be called")
    to(numbers) if step is None else to(numbers, step)
    return numbers
