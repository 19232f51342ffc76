"""The command line of telegrad-launch."""
from __future__ import annotations

import argparse
import os
import re
import shutil
from typing import List, Mapping, Optional

from . import limits
from .clusters import KINDS
from .errors import Refused
from .parser import Parser

_EPILOG = """examples:
  telegrad-launch -n 4 -- telegrad-train --gc-type int2
  telegrad-launch -H hosts -n 4 -s 2 -- telegrad-train --gc-type int2
  telegrad-launch -H hosts -- python3 train.py
  telegrad-launch --print slurm -n 4 -- telegrad-train --gc-type int2 > job.sh

Inside an allocation of Slurm, Grid Engine, PBS or LSF neither --cluster nor -H is needed.
docs/launch.md explains all of it."""
# Variables that go to other hosts, beside those of --env.
_HANDED_ON = re.compile(r"(TELEGRAD|UCX|FI|NCCL|GLOO|OPENBLAS|MKL|MXNET|KMP)_\w+"
                        r"|OMP_NUM_THREADS|LD_LIBRARY_PATH|PYTHONPATH|DMLC_INTERFACE")
_FORMS = ("slurm", "sge", "kubernetes", "compose")


def _count(low: int, high: int = 65535):
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,6}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no number in {low}..{high}")
        return int(text)
    return parse


def _limits(text: str) -> str:
    if limits.elastic(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no MIN or MIN:MAX, such as 2:4")
    return text


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="telegrad-launch", usage="telegrad-launch [OPTIONS] -- PROGRAM [ARGUMENTS]",
        description="Starts a job on all its hosts, shows what it prints, and ends with its "
        "exit code.", epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False)
    job = made.add_argument_group("job")
    job.add_argument("-n", "-np", "--num-workers", type=_count(1), metavar="WORKERS", dest="workers",
                     help="default: a worker for each slot of the hosts; 1 on this one")
    job.add_argument("-s", "--num-servers", type=_count(0), metavar="SERVERS", dest="servers",
                     default=0, help="processes that serve only, with a scheduler of its own; "
                     "0 (default): workers serve, too, and the first schedules")
    job.add_argument("--server-program", metavar="PROGRAM",
                     help="of servers and scheduler, such as telegrad-server; default: PROGRAM "
                     "itself, which DMLC_ROLE tells what it is")
    job.add_argument("--restart", type=_count(0, 1000), default=0, metavar="N",
                     help="start again up to N times where the exit code says that it may help; "
                     "telegrad-train goes on from --checkpoint")
    job.add_argument("--elastic", type=_limits, metavar="MIN[:MAX]",
                     help="of a script: it goes on when workers die while MIN are left; with MAX "
                     "another one starts in a killed one's place (telegrad-train has its own)")
    where = made.add_argument_group("hosts")
    where.add_argument("--cluster", "--launcher", choices=sorted(KINDS), metavar="KIND",
                       help=f"how hosts are reached: {', '.join(KINDS)}; default: by the "
                       "allocation around, ssh with -H, else local")
    where.add_argument("-H", "--hostfile", metavar="FILE",
                       help="a line for each host: \"n1\" or \"n1 slots=4\"; or the hosts "
                       "themselves: n1:4,n2:4")
    where.add_argument("--workers-per-host", type=_count(1), metavar="N",
                       help="in place of the slots")
    where.add_argument("--address", metavar="HOST",
                       help="of the first host, by which the others reach it")
    where.add_argument("--bind", default="auto", metavar="ADDRESS",
                       help="--bind of Telegrad's programs: an address, a network, a device; "
                       "default: auto")
    where.add_argument("--port", type=_count(1024), metavar="PORT",
                       help="the scheduler's; 128 from there on are used; default: free ones")
    where.add_argument("--ssh-port", type=_count(1), metavar="PORT",
                       help="default: as ssh's configuration has it")
    where.add_argument("--python", default="python3", metavar="PROGRAM",
                       help="on the hosts (%(default)s)")
    where.add_argument("--connect-timeout", type=_count(1, 86400), default=30,
                       metavar="SECONDS", help="until a host must have answered (%(default)s)")
    where.add_argument("--lost-timeout", type=_count(1, 86400), default=120, metavar="SECONDS",
                       help="of silence, after which a host ends its processes (%(default)s)")
    where.add_argument("--connections", type=_count(1, 1024), default=32, metavar="N",
                       help="hosts that are connected to at a time (%(default)s)")
    files = made.add_argument_group("files and variables")
    files.add_argument("--workdir", metavar="DIR",
                       help="where processes run; default: this folder's name there")
    files.add_argument("--sync-dst-dir", metavar="DIR",
                       help="copy this folder to DIR of each host by rsync, and run there")
    for name, who in (("--env", "all processes"), ("--env-server", "servers"),
                      ("--env-worker", "workers")):
        files.add_argument(name, action="append", default=[], metavar="NAME[=VALUE]",
                           help=f"a variable of {who}; without a value this one's")
    files.add_argument("--account", metavar="FILE",
                       help="append a line of JSON of this job when it has ended: hosts, "
                       "seconds, exit code, and the results that workers print")
    shown = made.add_argument_group("instead of starting it")
    shown.add_argument("--dry-run", action="store_true", help="print the commands")
    shown.add_argument("--status", nargs="*", metavar="PLACE",
                       help="show who of a running job does what and who is slow, by its "
                       "metrics: of HOST, HOST:PORT (9108 and up) or a folder of --metrics-file; "
                       "default: this host")
    shown.add_argument("--merge-timelines", metavar="FOLDER",
                       help="of the traces that --timeline FOLDER has left, one of each run, "
                       "with clocks of hosts set alike")
    shown.add_argument("--print", choices=_FORMS, dest="form",
                       help="print the file to submit to that system")
    shown.add_argument("--image", metavar="IMAGE", help="of --print kubernetes and compose")
    shown.add_argument("--name", default="telegrad", help="of the job that is printed")
    shown.add_argument("--kind", choices=("job", "jobset", "mpijob", "trainer"), default="job",
                       help="of --print kubernetes: an Indexed Job (default), a JobSet, an "
                       "MPIJob, a TrainJob of Kubeflow")
    shown.add_argument("--overlay", metavar="LIST", help="of --print kubernetes: tcp, rdma, gpu, "
                       "kueue, volcano, restart-in-place; several with commas")
    made.add_argument("--version", action="store_true", help="print the version, and end")
    made.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def parse(arguments: List[str]) -> argparse.Namespace:
    made = parser()
    options = made.parse_args(arguments)
    if options.program[:1] == ["--"]:
        del options.program[0]
    if options.version or options.status is not None or options.merge_timelines:
        return options
    if not options.program:
        made.error("no PROGRAM: telegrad-launch -n 2 -- telegrad-train --gc-type int2")
    if options.program[0].startswith("-"):
        made.error(f"no option {options.program[0]!r}")
    if options.form in ("kubernetes", "compose") or options.cluster == "kubernetes":
        if not options.image:
            made.error("--image is wanted: the containers' image")
        if not re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", options.name):
            made.error(f"--name {options.name!r}: lower-case letters, digits and - are wanted, "
                       "at most 40")
    name = os.path.basename(options.program[0])
    if options.elastic and name.startswith("telegrad-"):
        made.error(f"--elastic is for scripts; {name} "
                   + ("has its own: give it behind --" if name == "telegrad-train" else
                      "does not go on"))
    if options.hostfile and options.cluster in ("local", "kubernetes"):
        made.error(f"-H has no meaning with --cluster {options.cluster}")
    if options.sync_dst_dir and options.workdir:
        made.error("--sync-dst-dir says where processes run; leave --workdir out")
    options.program[0] = _absolute(options.program[0])
    if options.server_program:
        options.server_program = _absolute(options.server_program)
    return options


def _absolute(program: str) -> str:
    """A path counts from here, whatever folder processes run in."""
    return os.path.abspath(program) if "/" in program else program


def variables(texts: List[str], environ: Mapping[str, str]) -> "dict[str, str]":
    """Of "NAME", "NAME=VALUE" and launch.py's "NAME:VALUE"."""
    found = {}
    for text in texts:
        match = re.fullmatch(r"([A-Za-z_]\w*)(?:[=:](.*))?", text, re.DOTALL)
        if match is None:
            raise Refused(f"--env {text!r}: NAME=VALUE is wanted")
        name, value = match.groups()
        if value is None:
            if name not in environ:
                raise Refused(f"--env {name}: it is not set here; give NAME=VALUE")
            value = environ[name]
        found[name] = value
    return found


def handed_on(environ: Mapping[str, str]) -> "dict[str, str]":
    return {name: value for name, value in environ.items() if _HANDED_ON.fullmatch(name)}


def need_tool(name: str, why: str) -> None:
    if shutil.which(name) is None:
        raise Refused(f"{name} is not installed here; {why}")


def has_flag(words: List[str], name: str) -> bool:
    return value_of(words, name) is not None


def value_of(words: List[str], name: str) -> Optional[str]:
    """What follows a flag of the program; "" where nothing does."""
    for index, word in enumerate(words):
        flag, is_joined, value = word.partition("=")
        if flag.replace("_", "-") == name:
            return value if is_joined else "".join(words[index + 1:index + 2])
    return None
