"""When backward has a parameter's gradient, and what the parameter is called."""
from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict


def after_gradient(p: Any, work: Callable[[Any], None]) -> Any:
    """Calls ``work(p)`` each time that backward has added to its gradient, as long as what
    is given here lives."""
    if hasattr(p, "register_post_accumulate_grad_hook"):  # torch 2.1 and newer
        return p.register_post_accumulate_grad_hook(work)
    accumulates = p.expand_as(p).grad_fn.next_functions[0][0]
    accumulates.register_hook(lambda *_: work(p))
    return accumulates


def names_of(optimizer: Any, named_parameters: Any) -> Dict[Any, str]:
    """Of all the optimizer's parameters.

    Raises:
        ValueError: names that occur twice, or do not cover them.
    """
    own = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {p: f"allreduce.noname.{i}.{j}"
                for i, group in enumerate(optimizer.param_groups)
                for j, p in enumerate(group["params"])}
    listed = list(named_parameters)
    if any(not isinstance(each, tuple) for each in listed):
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), "
                         "usually produced by model.named_parameters().")
    twice = [name for name, count in Counter(name for name, _ in listed).items() if count > 1]
    if twice:
        raise ValueError("Parameter names in named_parameters must be unique. Found "
                         f"duplicates: {', '.join(twice)}")
    names = {p: name for name, p in listed}
    missing = [tuple(p.shape) for p in own if p not in names]
    if missing:
        raise ValueError(f"named_parameters was specified, but {len(missing)} of "
                         f"{len(own)} parameters were not named, of the shapes {missing}")
    return names
