"""What a process group of torch.distributed has under way, and the threads that do it."""
from __future__ import annotations

import _thread
import threading
import time
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Callable, Dict, List, Optional, Set

import torch
from torch._C._distributed_c10d import Work as _C10dWork

from ..errors import Timeout, WrongOrder
from ._threads import run_within, set_result

_IDLE_S = 2.0
_MAX_KEPT = 64  # works that nobody has waited for yet
_mutex = threading.Lock()  # of all futures


class Work(_C10dWork):
    """An operation: `call` does it on a thread of the group, and gives the rank that
    sent, where that is the question. `result` are the tensors that it fills."""

    def __init__(self, call: Callable[[], Any], result: List[Any],
                 interrupt: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._call: Optional[Callable[[], Any]] = call
        self._result, self._interrupt = result, interrupt
        self._error: Optional[BaseException] = None
        self._sender = -1
        self._is_done = False
        self._pending = _thread.allocate_lock()
        self._pending.acquire()
        self._future: Any = None
        self._keeper: Optional["Lanes"] = None
        self._before: List["Work"] = []

    def run(self) -> None:
        """On whichever thread."""
        call, self._call = self._call, None
        try:
            assert call is not None
            sender = call()
            self._sender = -1 if sender is None else sender
        except BaseException as why:  # who waits gets it
            self._error = why
        with _mutex:
            self._is_done, future = True, self._future
        self._pending.release()
        if future is not None:
            set_result(future, None)

    def wait(self, timeout: Any = None) -> bool:
        """
        Raises:
            telegrad.Error: of the operation; Timeout, after which it goes on.
        """
        seconds = seconds_of(timeout, 0)
        try:  # C++ has 0 for any number of them
            is_done = self._pending.acquire(True, seconds if seconds > 0 else -1)
        except BaseException as why:  # Ctrl-C
            self._interrupt(why)
            raise
        if not is_done:
            raise Timeout(f"the operation has not ended after {seconds:g} s")
        self._pending.release()
        self._forget()
        self._outcome(None)
        return True

    def get_future(self) -> Any:
        devices = sorted({each.device.index for each in self._result if each.is_cuda})
        with _mutex:
            is_first, is_done = self._future is None, self._is_done
            if is_first:
                self._future = torch.futures.Future(
                    devices=[torch.device("cuda", index) for index in devices])
                # In C++ only what a callback raises is an error.
                self._checked = self._future.then(self._outcome)
        self._forget()
        if is_first and is_done:
            self._future.set_result(None)
        return self._checked

    def ends_after(self, others: List["Work"]) -> "Work":
        """Stands for these, too, which are done before it."""
        self._before = others
        return self

    def _outcome(self, _: Any) -> List[Any]:
        for work in [*self._before, self]:
            if work._error is not None:
                raise work._error
        return self._result

    def is_completed(self) -> bool:
        return self._is_done

    def is_success(self) -> bool:
        return self._is_done and self._error is None

    def exception(self) -> Optional[BaseException]:
        return self._error

    def result(self) -> List[Any]:
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        """Of a receive from any."""
        return self._sender

    _source_rank = source_rank

    def _forget(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.kept.pop(id(self), None)


def seconds_of(timeout: Any, standard: float) -> float:
    """Of a timedelta or a number; `standard`: None is given."""
    if timeout is None:
        return standard
    return float(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)


class Lanes:
    """Works wait for those before them in their lane alone. Each lane has a thread while it
    has works, and some seconds longer."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._queues: Dict[Any, "SimpleQueue[Work]"] = {}
        self._under_way: Set[int] = set()
        self._is_closed = False
        # Versions of torch before 2.9 let C++ hold a work whose Python part is gone.
        self.kept: Dict[int, Work] = {}

    def put(self, lane: Any, work: Work) -> Work:
        work._keeper = self
        with self._mutex:
            if self._is_closed:
                raise WrongOrder("the process group is destroyed")
            self.kept[id(work)] = work
            if len(self.kept) > _MAX_KEPT:
                self.kept.pop(next(iter(self.kept)))
            self._under_way.add(id(work))
            queue = self._queues.get(lane)
            if queue is None:
                queue = self._queues[lane] = SimpleQueue()
                threading.Thread(target=self._run, args=(lane, queue), daemon=True,
                                 name=f"telegrad-{lane[0]}").start()
            queue.put(work)
        return work

    def close(self) -> None:
        """What was put before is done."""
        with self._mutex:
            self._is_closed = True

    def is_idle(self) -> bool:
        return not self._under_way

    def _run(self, lane: Any, queue: "SimpleQueue[Work]") -> None:
        with torch.no_grad():
            while True:
                try:
                    taken = [queue.get(timeout=0 if self._is_closed else _IDLE_S)]
                except Empty:
                    with self._mutex:
                        if queue.empty():
                            del self._queues[lane]
                            return
                    continue
                run_within(partial(self._do, taken))

    def _do(self, taken: List[Work]) -> None:
        """Behind it nothing of torch is left on this thread, which may find Python ended."""
        work = taken.pop()
        work.run()
        self._under_way.discard(id(work))


def wait_until(is_so: Callable[[], bool], deadline: float) -> bool:
    """Asks again and again, until that time of `time.monotonic`; a store's RuntimeError
    is a no."""
    pause = 0.001
    while True:
        try:
            if is_so():
                return True
        except RuntimeError:
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
