"""Operations on tensors of GPUs, through pinned host memory."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List

import torch

from .._log import LOGGER

_said: List[str] = []


def tensors_in(what: Any) -> Iterator[Any]:
    """Of arguments, lists within lists."""
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, (list, tuple)):
        for each in what:
            yield from tensors_in(each)


def _host_like(tensor: Any) -> Any:
    """Pinned where there is pinned memory, else ordinary."""
    try:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    except RuntimeError as why:
        if not _said:
            _said.append("pinned")
            LOGGER.warning("no pinned memory for %d bytes; copies of GPUs' tensors take longer: "
                           "%s", tensor.numel() * tensor.element_size(),
                           str(why).partition(".")[0])
        return torch.empty(tensor.shape, dtype=tensor.dtype)


class Staged:
    """Made by the thread that calls an operation: what its current streams have been given
    is done before the tensors are read or written. No thread but the one that runs it waits.

    Args:
        method: takes the arguments with tensors in host memory.
        filled: those of its tensors that get results.
        cuda: `torch.cuda`.
    """

    def __init__(self, method: Callable[..., Any], filled: List[Any], args: Any,
                 cuda: Any = torch.cuda) -> None:
        self._method, self._filled, self._args, self._cuda = method, filled, args, cuda
        self._before: Dict[Any, Any] = {}  # by device
        for each in tensors_in(args):
            if each.is_cuda and each.device not in self._before:
                event = self._before[each.device] = cuda.Event()
                event.record(cuda.current_stream(each.device))

    def __call__(self) -> Any:
        """On the group's thread; results are in place when it returns."""
        streams = {device: self._cuda.Stream(device) for device in self._before}
        for device, event in self._before.items():
            streams[device].wait_event(event)
        copies: Dict[int, Any] = {}
        args = self._lowered(self._args, streams, copies)
        self._settle(streams)
        result = self._method(*args)
        for each in self._filled:
            if id(each) in copies:
                self._copy(each, copies[id(each)], streams)
        self._settle(streams)
        return result

    def _lowered(self, what: Any, streams: Any, copies: Dict[int, Any]) -> Any:
        """The same with copies of what is elsewhere."""
        if isinstance(what, torch.Tensor):
            if what.device.type == "cpu":
                return what
            if id(what) not in copies:
                copies[id(what)] = what.cpu() if what.is_sparse else _host_like(what)
                if not what.is_sparse:
                    self._copy(copies[id(what)], what, streams)
            return copies[id(what)]
        return ([self._lowered(each, streams, copies) for each in what]
                if isinstance(what, (list, tuple)) else what)

    def _copy(self, to: Any, source: Any, streams: Any) -> None:
        there = to if to.is_cuda else source
        if there.device not in streams:  # of no CUDA
            to.copy_(source)
            return
        with self._cuda.stream(streams[there.device]):
            to.copy_(source, non_blocking=True)

    @staticmethod
    def _settle(streams: Dict[Any, Any]) -> None:
        for stream in streams.values():
            stream.synchronize()


def say_once(why: str) -> None:
    """That tensors on GPUs go this way."""
    if why not in _said:
        _said.append(why)
        LOGGER.info("backend telegrad: tensors on GPUs go through pinned host memory: %s", why)
