"""What a process group of torch.distributed has under way, and the threads that do it."""
from __future__ import annotations

import _thread
import threading
import time
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Callable, Dict, List, Optional, Sequence, Set

import torch
from torch._C._distributed_c10d import Work as _C10dWork

from ..errors import Error, Timeout, WrongOrder
from ..group import Started
from ._threads import run_within, set_result

_IDLE_S = 2.0
_MAX_KEPT = 64  # works that nobody has waited for yet
_mutex = threading.Lock()  # of all futures


class Work(_C10dWork):
    """An operation: `call` does it on a thread of the group, and gives the rank that
    sent, where that is the question. `result` are the tensors that it fills."""

    _error: Optional[BaseException] = None
    _sender = -1
    _is_done = False
    _future: Any = None
    _keeper: Optional["Lanes"] = None
    _before: Sequence["Work"] = ()

    def __init__(self, call: Callable[[], Any], result: List[Any],
                 interrupt: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._call: Optional[Callable[[], Any]] = call
        self._result, self._interrupt = result, interrupt
        self._pending = _thread.allocate_lock()
        self._pending.acquire()

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
            is_done = self._ends(seconds if seconds > 0 else None)
        except BaseException as why:  # Ctrl-C
            self._interrupt(why)
            raise
        if not is_done:
            raise Timeout(f"the operation has not ended after {seconds:g} s")
        self._forget()
        self._outcome(None)
        return True

    def _ends(self, seconds: Optional[float]) -> bool:
        """Whether it has, after so many; None: any number."""
        is_done = self._pending.acquire(True, -1 if seconds is None else seconds)
        if is_done:
            self._pending.release()
        return is_done

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
            work._ends(None)
            if work._error is not None:
                raise work._error
        return self._result

    def is_completed(self) -> bool:
        return self._is_done

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

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


class StartedWork(Work):
    """Of what the group's own thread does, which is none of Python's."""

    _twin: Optional[Work] = None

    def __init__(self, started: Started, result: List[Any],
                 interrupt: Callable[[BaseException], None]) -> None:
        _C10dWork.__init__(self)
        self._started, self._result, self._interrupt = started, result, interrupt

    def _ends(self, seconds: Optional[float]) -> bool:
        if not self._is_done and self._started.end(seconds):
            self._error = self._started.error()
            self._is_done = True
        return self._is_done

    def is_completed(self) -> bool:
        return self._ends(0)

    def get_future(self) -> Any:
        """Of a work that waits for it, on a thread that there is for futures alone."""
        with _mutex:
            twin, is_first = self._twin, self._twin is None
            if twin is None:
                twin = self._twin = Work(self._settle, self._result, self._interrupt)
        if is_first:
            keeper = self._keeper
            self._forget()
            if keeper is None or keeper.is_closed or self.is_completed():
                twin.run()
            else:
                keeper.put(("futures",), twin)
        return twin.get_future()

    def _settle(self) -> None:
        self._outcome(None)


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
        self.is_closed = False
        # Versions of torch before 2.9 let C++ hold a work whose Python part is gone.
        self.kept: Dict[int, Work] = {}

    def keep(self, work: Work) -> Work:
        work._keeper = self
        with self._mutex:
            self.kept[id(work)] = work
            if len(self.kept) > _MAX_KEPT:
                self.kept.pop(next(iter(self.kept)))
        return work

    def check(self) -> None:
        """
        Raises:
            telegrad.WrongOrder: they are closed.
        """
        if self.is_closed:
            raise WrongOrder("the process group is destroyed")

    def put(self, lane: Any, work: Work) -> Work:
        with self._mutex:
            self.check()
            self._under_way.add(id(work))
            queue = self._queues.get(lane)
            if queue is None:
                queue = self._queues[lane] = SimpleQueue()
                threading.Thread(target=self._run, args=(lane, queue), daemon=True,
                                 name=f"telegrad-{lane[0]}").start()
            queue.put(work)
        return self.keep(work)

    def close(self) -> None:
        """What was put before is done."""
        with self._mutex:
            self.is_closed = True

    def is_idle(self) -> bool:
        return not self._under_way

    def _run(self, lane: Any, queue: "SimpleQueue[Work]") -> None:
        with torch.no_grad():
            while True:
                try:
                    taken = [queue.get(timeout=0 if self.is_closed else _IDLE_S)]
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
