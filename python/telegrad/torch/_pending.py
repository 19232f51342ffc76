"""Operations that a step has begun, and the thread on which they end."""
from __future__ import annotations

import threading
from typing import Any, Dict, Optional, Tuple

from .._library import SLICE_S, call
from ..errors import Error
from ..store import Store
from ._auto import Choice
from ._bucket import Bucket
from ._forward import ForwardWatch
from ._threads import set_result


class Pending:
    """Sums of buckets under way in one store, each with what waits for it.

    Args:
        watch: hears now and then what others wait for.
        choice: of "auto", hears when parts of a step begin and end.
        group: the model's process group. It lives as long as the thread, and so for ever in a
            child of a fork, where the end of gloo's would crash.
        whole: the job of all ranks, where the store's is of those with the same part.
    """

    def __init__(self, store: Store, watch: ForwardWatch, choice: Optional[Choice],
                 group: Any, whole: Optional[Any]) -> None:
        self._store, self._watch, self._choice = store, watch, choice
        self._group, self._whole = group, whole
        self._operations: Dict[int, Tuple[Any, Any]] = {}
        self._changed = threading.Condition()
        self.error: Optional[BaseException] = None  # the first, which ends all
        self.thread = threading.Thread(target=self._complete, daemon=True,
                                       name="telegrad-completions")
        self.thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether no operation is under way."""
        return not self._operations

    def push_pull(self, plan: Bucket, buffer: Any, future: Any) -> int:
        """Gives the tag. Without a `future` nobody is told but who waits."""
        if self._choice is not None:
            self._choice.begin()
        tag = self._store.queue.new_tag((buffer, plan))
        self._operations[tag] = (future, buffer)  # without a lock that Ctrl-C may leave
        try:
            call("store_push_pull", self._store.handle, plan.num, plan.keys, plan.tensors,
                 plan.tensors, None, self._store.queue.handle, tag)
        except Error:
            self._store.queue.forget(tag)
            self._operations.pop(tag)
            raise
        return tag

    def wait(self, tag: Optional[int] = None) -> None:
        """For all operations, or for that one. After an error nothing is waited for: Ctrl-C
        may have come before what is noted as under way had begun."""
        with self._changed:
            while ((self._operations if tag is None else tag in self._operations)
                   and self.error is None):
                self._changed.wait(SLICE_S)
            error = self.error
        if error is not None:
            raise error

    def note(self, why: BaseException) -> None:
        """An error, which whoever waits gets."""
        if self._whole is not None:
            why = self._watch.cause(why)
        with self._changed:
            if self.error is None:
                self.error = why
            self._changed.notify_all()

    def _complete(self) -> None:
        while True:
            try:
                done = self._store.queue.next(SLICE_S)
                failure = self._whole.failure() if self._whole and done is None else None
            except Error:  # closed
                return
            if done is None:
                self._watch.check()
                if failure is not None and self.error is None:
                    self.note(failure)
                continue
            tag, error = done
            with self._changed:
                future, buffer = self._operations[tag]
            if error is not None:
                self.note(error)
            if future is not None:
                set_result(future, buffer)
            if self._choice is not None:
                self._choice.end()
            with self._changed:
                self._operations.pop(tag)
                self._changed.notify_all()
