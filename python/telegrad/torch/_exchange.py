"""An exchange of what local steps changed: of all ranks, or of what each owns of its
host's sum. The host waits for no device."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .._arrays import stream_of
from .._library import call
from ..errors import Error
from ..store import Store
from ._forward import ForwardWatch
from ._parts import Parts, Rows


class Exchange:
    """Of tensors by their keys, which become their sums."""

    def __init__(self, store: Store, keys: Sequence[int], changes: Sequence[Any]) -> None:
        self._store, self._keys, self._changes = store, keys, changes
        self._tag = 0

    def begin(self) -> None:
        self._tag = self._store.start("push_pull", self._keys, self._changes, self._changes)

    def end(self) -> None:
        """What current streams get from now on finds the sums; in host memory they are
        there."""
        for stream in {stream_of(each) for each in self._changes}:
            self._store.queue.wait_on(self._tag, stream)

    def settle(self) -> None:
        """Behind `end`: nothing touches the tensors any more."""
        tag, self._tag = self._tag, 0
        if tag:
            self._store.queue.wait(tag)


class PartsExchange(Exchange):
    """Of what lies in one buffer, by the ranks of a host (`telegrad.torch._parts`).

    Args:
        names, changes: in `buffer`'s order.
        keys: of this rank's pieces, by name.
    """

    def __init__(self, store: Store, parts: Parts, names: Sequence[str], changes: Sequence[Any],
                 buffer: Any, keys: Dict[str, int], watch: ForwardWatch) -> None:
        super().__init__(store, [], changes)
        self._parts, self._buffer, self._watch = parts, buffer, watch
        self._rows = Rows(parts, names, changes, buffer, keys)

    def begin(self) -> None:
        own, queue = self._rows.bucket, self._store.queue
        with self._parts.beside(self._buffer):
            self._rows.reduce(self._buffer)
            if own.num == 0:
                return
            tag = queue.new_tag((self._buffer, self._rows))
            try:
                call("store_push_pull", self._store.handle, own.num, own.keys, own.tensors,
                     own.tensors, None, queue.handle, tag)
            except Error:
                queue.forget(tag)
                raise
            self._tag = tag

    def end(self) -> None:
        try:
            if self._tag:
                self._store.queue.wait_on(self._tag, stream_of(self._buffer))
            self._rows.gather(self._buffer)
        except Error as why:  # of a part's job; that of all ranks knows who died
            raise self._watch.cause(why) from None


def exchanges_of(store: Store, parts: Parts, names: List[str], changes: List[Any],
                 turns: List[int], keys: Dict[str, int],
                 job: Any) -> Dict[int, List[PartsExchange]]:
    """Those of each turn, one for each type and device; `changes` become pieces of their
    buffers."""
    alike: Dict[Any, List[int]] = {}
    for i, change in enumerate(changes):
        alike.setdefault((turns[i], change.dtype, change.device), []).append(i)
    found: Dict[int, List[PartsExchange]] = {}
    for (turn, _, _), each in alike.items():
        sizes = [changes[i].numel() for i in each]
        buffer = changes[each[0]].new_zeros(sum(sizes))
        for i, piece in zip(each, buffer.split(sizes)):
            changes[i] = piece.view(changes[i].shape)
        found.setdefault(turn, []).append(PartsExchange(
            store, parts, [names[i] for i in each], [changes[i] for i in each], buffer, keys,
            ForwardWatch(job)))
    return found
