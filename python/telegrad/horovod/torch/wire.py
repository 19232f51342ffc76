"""Tensors of torch as the library takes them."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

import torch

from ...errors import UsageError
from ..common.submission import Wire

_TYPES = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.bool)
_WIDER = {torch.int16: torch.int32}  # in which it is added
_ADDING = ("allreduce", "reducescatter")


class _Memory:
    """Of a GPU, for torch."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"data": (pointer, False), "shape": (size,),
                                         "typestr": "|u1", "version": 2}


class _Tensor(Wire):
    """Of one of the library's types, in host memory or a GPU's.

    Args:
        tensor: contiguous.
        out: for the result, where its size is known; may be `tensor`.
        like: of an alltoall, a tensor of the type for what was received.
    """

    def __init__(self, kind: str, tensor: Any, out: Optional[Any],
                 like: Optional[Any] = None) -> None:
        if tensor.is_sparse:
            raise UsageError("Tensor is sparse: sparse_allreduce_async takes it.")
        if not tensor.is_contiguous():
            raise UsageError("Tensor is required to be contiguous.")
        self._tensor, self._like = tensor, like
        self._out: Any = out
        sent = tensor.detach()
        if sent.device.type not in ("cpu", "cuda"):
            sent = sent.to("cpu")
        if kind in _ADDING:
            if tensor.dtype not in (*_TYPES, *_WIDER):
                raise UsageError(f"Tensor type {tensor.type()} is not supported.")
            sent = sent.to(_WIDER.get(tensor.dtype, tensor.dtype))
        self._is_bytes = sent.dtype not in _TYPES
        self.shape = list(sent.shape)
        if self._is_bytes:
            if self.shape or out is not None:
                self.shape.append(sent.element_size())
            sent = sent.reshape(-1).view(torch.uint8)
        self.sent = sent
        if out is not None:
            is_direct = not self._is_bytes and out.is_contiguous() and (
                out.dtype, out.device) == (sent.dtype, sent.device)
            self.got = out.detach() if is_direct else torch.empty_like(sent)

    def finish(self) -> Any:
        if self.got.data_ptr() != self._out.data_ptr():
            with torch.no_grad():
                self._out.copy_(self._typed(self.got).reshape(self._out.shape))
        return self._out

    def made(self, rows: List[int], pointer: int, elems: int) -> Any:
        wire = torch.empty(elems, dtype=self.sent.dtype, device=self.sent.device)
        size = elems * wire.element_size()
        if size and wire.is_cuda:  # the library's memory goes when this returns
            wire.view(torch.uint8).copy_(
                torch.as_tensor(_Memory(pointer, size), device=wire.device))
            torch.cuda.current_stream(wire.device).synchronize()
        elif size:
            ctypes.memmove(wire.data_ptr(), pointer, size)
        found = self._typed(wire).reshape(sum(rows), *self._tensor.shape[1:]).to(
            self._tensor.device, self._tensor.dtype)
        return found if self._like is None else (found, torch.tensor(rows).to(self._like))

    def _typed(self, wire: Any) -> Any:
        return wire.view(self._tensor.dtype) if self._is_bytes else wire


def wires(kind: str, tensors: Sequence[Any], outs: Optional[Sequence[Any]] = None,
          like: Optional[Any] = None) -> List[Wire]:
    """Of each.

    Args:
        outs: for results of a size that is known; None: the library makes them.
    """
    return [_Tensor(kind, tensor, None if outs is None else outs[i], like)
            for i, tensor in enumerate(tensors)]
