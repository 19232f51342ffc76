"""Compresses a script's gradients without changing it::

    torchrun --nproc_per_node 2 -m telegrad.run --gc-type 2bit train.py ARGUMENTS

Each DistributedDataParallel that the script makes is compressed. With --horovod
``import horovod.torch`` and ``horovod.mxnet`` give the script Telegrad's operations, and
--gc-type is for hvd.DistributedOptimizer.
"""
from __future__ import annotations

import argparse
import functools
import os
import runpy
import sys
from typing import Any, Callable, List, Optional

from ._environment import codec, is_disabled
from ._library import LIBRARY
from ._log import LOGGER
from ._momentum import standard_codec, wants_normal, why_no_codec
from .job import note_failure
from .launch.parser import Parser


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m telegrad.run",
        usage="torchrun ... -m telegrad.run [OPTIONS] SCRIPT [ARGUMENTS]",
        description=(__doc__ or "").split("::")[0] + ".",
        epilog="Start all ranks by torchrun or telegrad-launch. docs/pytorch.md explains the "
               "options; telegrad.torch.State has all.", allow_abbrev=False)
    parser.add_argument("--version", action="version",
                        version=LIBRARY.telegrad_version().decode())
    parser.add_argument("--horovod", action="store_true",
                        help="the script imports horovod; docs/from_horovod.md")
    parser.add_argument("--autotune", action="store_true",
                        help="of --horovod: fusion threshold and cycle time are tuned while the "
                        "script runs, as by HOROVOD_AUTOTUNE")
    parser.add_argument("--autotune-log", metavar="FILE",
                        help="what was measured, as CSV; HOROVOD_AUTOTUNE_LOG")
    parser.add_argument("--gc-type", default=codec(), metavar="CODEC", help="codec "
                        f"({codec() or standard_codec()}; with --horovod none)")
    parser.add_argument("--gc-allow", dest="allow", metavar="CODEC,...",
                        help="codecs that --gc-type auto may choose (int4)")
    parser.add_argument("--gc-rule", default="", dest="rules", metavar="PATTERN=CODEC;...",
                        help="codecs of parameters whose name has the pattern")
    parser.add_argument("--gc-threshold", default="auto", dest="threshold",
                        help="of 2bit and threshold: %(default)s, 0.002 or 2rms")
    parser.add_argument("--gc-dense-1d", default="on", choices=("on", "off"),
                        dest="dense_1d", help="parameters of one dimension go dense "
                        "(%(default)s)")
    parser.add_argument("--gc-reply", default="auto", dest="reply",
                        help="how sums come back: %(default)s, sum, reencode, dense")
    parser.add_argument("--gc-packing", default="plain", dest="packing",
                        help="of 2bit's codes: %(default)s, radix, auto")
    parser.add_argument("--gc-min-bytes", default=0, type=int, dest="min_bytes",
                        help="smaller parameters go dense (%(default)s)")
    parser.add_argument("--gc-warmup-steps", default=0, type=int, dest="warmup_steps",
                        help="steps at the start without a codec (%(default)s)")
    parser.add_argument("--gc-guard", default="on", choices=("on", "off"), dest="guard",
                        help="a parameter that its codec harms goes dense (%(default)s)")
    parser.add_argument("--gc-momentum", default="auto", dest="momentum",
                        choices=("auto", "off", "nesterov", "heavyball"),
                        help="ranks keep the momentum of --gc-momentum-rate in front of the "
                        "codec, with Nesterov's lead (auto) or without; off: SGD has it")
    parser.add_argument("--gc-momentum-rate", type=float, dest="momentum_rate", metavar="RATE",
                        help="that of the script's torch.optim.SGD, taken over")
    parser.add_argument("--gc-normalize", default="auto", dest="normalize",
                        choices=("auto", "off"),
                        help="codecs get gradients divided by the root of Adam's mean of "
                        "squares, and its steps Nesterov's lead; auto: with int2 and int3")
    parser.add_argument("--gc-nonfinite", default="propagate", dest="nonfinite",
                        help="NaN and infinities: %(default)s, error, zero")
    parser.add_argument("--servers", type=int, help="ranks with a server; default: all")
    parser.add_argument("--tier1", choices=("auto", "on", "group", "off"),
                        help="whether ranks of a host sum first; auto, the default: on several "
                        "hosts; group: by their process group, as on GPUs with NCCL")
    parser.add_argument("--transport", default="tcp",
                        help="%(default)s; auto: the planner chooses")
    parser.add_argument("--bind", help="address to listen on, of this host")
    parser.add_argument("--link", default="none", help="emulate a link: 1gbit,5ms")
    parser.add_argument("-m", action="store_true", dest="is_module",
                        help="the script is the name of a module")
    parser.add_argument("script", help="whatever stands behind it is the script's own")
    parser.add_argument("arguments", nargs=argparse.REMAINDER,
                        help=argparse.SUPPRESS).required = False
    return parser


def _is_first() -> bool:
    """Whether this rank says what concerns all."""
    return os.environ.get("RANK", "0") == "0"


def _after_init(kind: Any, work: Callable[[Any], Any]) -> None:
    """Calls `work` with each object of that kind that the script will make."""
    before = kind.__init__

    @functools.wraps(before)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        work(self)

    kind.__init__ = made


def _watch(options: Any) -> None:
    """Compresses models, takes over momentum where that is asked for, and warns of
    optimizers that do not go with the codec."""
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer

    from .torch import State, compress
    from .torch._auto import check_optimizer, codecs_of, optimizers_of
    from .torch._states import states
    from .torch._momentum import Momentum
    from .torch._normal import settle_normal

    codecs = codecs_of(options["gc_type"], options["allow"], options["rules"])
    kinds = (SGD, Adam, AdamW, NAdam)  # with what can be taken over
    kept = Momentum("auto" if options["momentum_rate"] else "off")

    def take(optimizer: Any) -> None:
        for state in states():
            if isinstance(state, State) and isinstance(optimizer, kinds):
                state.take_over(optimizer)

    def compressed(model: Any) -> None:
        compress(model, **options)
        for each in optimizers_of(set(map(id, model.parameters()))):
            take(each)

    def check(optimizer: Any) -> None:
        # Of "auto", too, a warning: nobody has said that it steps that model.
        for each in codecs:
            normal = settle_normal(optimizer, options["normalize"], wants_normal([each]))
            check_optimizer(optimizer, each, None, momentum=kept, normal=normal)

    _after_init(DistributedDataParallel, compressed)
    _after_init(Optimizer, take)
    if _is_first():
        _after_init(Optimizer, check)


def _run(script: str, is_module: bool) -> None:
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        if not getattr(sys.flags, "safe_path", sys.flags.isolated):
            sys.path[0] = os.path.dirname(os.path.realpath(script))
        runpy.run_path(script, run_name="__main__")


def _alias_horovod(options: Any, autotune: bool, log: Optional[str]) -> None:
    """Horovod's names are those of `telegrad.horovod`."""
    from .horovod import alias

    if autotune:
        os.environ["HOROVOD_AUTOTUNE"] = "1"
    if log:
        os.environ["HOROVOD_AUTOTUNE_LOG"] = log

    alias.install(options)
    if _is_first():
        LOGGER.info("horovod, horovod.torch and horovod.mxnet are telegrad.horovod here")


def main(arguments: Optional[List[str]] = None) -> None:
    """Runs the script as if it were started by itself."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    script, rest = options.pop("script"), options.pop("arguments")
    is_module, is_horovod = options.pop("is_module"), options.pop("horovod")
    autotune, log = options.pop("autotune"), options.pop("autotune_log")
    if (autotune or log) and not is_horovod:
        parser.error("--autotune and --autotune-log are of --horovod")
    if not is_module and not os.path.exists(script):
        parser.error(f"no script {script}: no such file")
    given = options["gc_type"]
    why = why_no_codec(given) if given else ""
    if why:
        parser.error(f"--gc-type or TELEGRAD_CODEC: {why}")
    for name in ("guard", "dense_1d"):
        options[name] = options[name] == "on"
    if is_horovod:
        _alias_horovod(options, autotune or bool(log), log)
    else:
        options["gc_type"] = options["gc_type"] or standard_codec()
        _watch(options)
    sys.argv = [script, *rest]
    try:
        _run(script, is_module)
    except SystemExit as why:
        if why.code not in (None, 0):
            note_failure(why)
            raise
    if is_horovod:
        return
    from .torch._states import any_made

    if not any_made() and _is_first() and not is_disabled():
        LOGGER.warning("this process made no DistributedDataParallel and compressed nothing; "
                       "start all ranks by torchrun")


if __name__ == "__main__":
    main()
