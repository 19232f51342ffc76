"""A training that goes on, in the same processes, when ranks die or come."""
from __future__ import annotations

import functools
from typing import Any, Callable

from ...common import world
from ...common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_WAY_OUT = ("the ranks that are left go on in a job that is elastic: telegrad-launch --elastic "
            "MIN:MAX, or TELEGRAD_ELASTIC=MIN:MAX on all ranks (docs/from_horovod.md)")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of ``func(state, ...)``: begins with the elder's state on all ranks. When ranks
    die, in an elastic job, what was committed last is restored; when others come in, at a commit,
    it goes on from there: each time with other ranks and sizes, the state's reset callbacks, and
    ``func`` anew.

    Raises:
        HorovodInternalError: another error of an operation; too few ranks are left; the job is
            not elastic.
    """
    @functools.wraps(func)
    def begun(state: Any, *args: Any, **kwargs: Any) -> Any:
        skips_sync = resets = False
        while True:
            try:
                if resets:
                    world.go_on()
                    resets = False
                    state.on_reset()
                if not skips_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as why:
                resets, skips_sync = world.goes_on(), False
                state.restore()
                if not resets:
                    if world.is_elastic():
                        raise
                    raise HorovodInternalError(f"{why}; {_WAY_OUT}", exit_code=why.exit_code,
                                               code=why.code, dead=why.dead) from why
            except HostsUpdatedInterrupt as why:
                resets = world.goes_on()
                skips_sync = why.skip_sync and not resets
                if not resets:  # of a script's own
                    state.on_reset()

    return begun
