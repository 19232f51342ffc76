"""What Horovod's elastic mode is here: an attempt of all ranks, which a launcher repeats."""
from __future__ import annotations

import functools
from typing import Any, Callable

from ...common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_WAY_OUT = ("the ranks that are left form no new job in this process, as Horovod's elastic "
            "mode has it: start them by torchrun --max-restarts N, which starts all anew, and "
            "load what state.save wrote (docs/from_horovod.md); DistributedDataParallel goes "
            "on with telegrad.torch.State(elastic=True)")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of ``func(state, ...)``: begins with rank 0's state on all ranks. When an
    operation fails the state is restored, and the error goes on with the way out.

    Raises:
        HorovodInternalError: of the operation.
    """
    @functools.wraps(func)
    def begun(state: Any, *args: Any, **kwargs: Any) -> Any:
        skips_sync = False
        while True:
            if not skips_sync:
                state.sync()
            try:
                return func(state, *args, **kwargs)
            except HorovodInternalError as why:
                state.restore()
                raise HorovodInternalError(f"{why}; {_WAY_OUT}", exit_code=why.exit_code,
                                           code=why.code, dead=why.dead) from why
            except HostsUpdatedInterrupt as why:  # of a script's own
                skips_sync = why.skip_sync
                state.on_reset()

    return begun
