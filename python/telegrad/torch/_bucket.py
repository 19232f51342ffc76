"""What DDP hands to a communication hook, as the C interface takes it."""
from __future__ import annotations

import re
from ctypes import c_uint32
from typing import Any, Dict, Iterable, List, Optional, Sequence

from .._arrays import stream_of, tensor_of
from .._library import Tensor


def unwrapped(model: Any) -> Any:
    """Without what torch.compile puts around a module."""
    return getattr(model, "_orig_mod", model)


_NUMBER = re.compile("([0-9]+)")


def pattern_of(names: Sequence[str], model: Iterable[str]) -> str:
    """A pattern that finds `names` and no other of the `model`'s. Layers are numbered, so
    it is short: a number stands for all of them where the model has none but of `names`."""
    def form(name: str) -> str:
        return _NUMBER.sub("[0-9]+", re.escape(name).replace("\\-", "-"))

    wanted = set(names)
    mixed = {form(name) for name in model if name not in wanted}
    parts: Dict[str, List[str]] = {}  # form -> numbers, where there is one
    for name in names:
        text, numbers = form(name), _NUMBER.findall(name)
        if text in mixed and len(numbers) != 1:
            parts[re.escape(name).replace("\\-", "-")] = []
        else:
            parts.setdefault(text, []).extend(numbers if text in mixed else [])
    return "^(" + "|".join(
        text.replace("[0-9]+", "(" + "|".join(numbers) + ")") if numbers else text
        for text, numbers in parts.items()) + ")$"


class Bucket:
    """What C takes for a list of gradients; addresses change with DDP's `buffer`, of
    which they are parts."""

    def __init__(self, keys: List[int], gradients: Sequence[Any],
                 buffer: Optional[Any] = None) -> None:
        self.gradients = [] if buffer is not None else list(gradients)  # kept alive
        self.tensors = (Tensor * len(keys))(*[tensor_of(each) for each in gradients])
        self.keys = (c_uint32 * len(keys))(*keys)
        self.num = len(keys)
        if buffer is not None:
            self.base, self.stream = buffer.data_ptr(), stream_of(buffer)

    def move_to(self, buffer: Any) -> None:
        """The buffer and the stream may be others in each step."""
        base, stream = buffer.data_ptr(), stream_of(buffer)
        if base == self.base and stream == self.stream:
            return
        for tensor in self.tensors:
            tensor.data += base - self.base
            tensor.stream = stream
        self.base, self.stream = base, stream
