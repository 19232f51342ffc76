"""Where a job may run: files of hosts, and what batch systems say of an allocation."""
from __future__ import annotations

import itertools
import os
import re
from typing import Callable, List, Mapping, NamedTuple, Optional, Tuple

from .errors import Refused


class Host(NamedTuple):
    name: str
    slots: int = 0  # 0: nobody has said


class Allocation(NamedTuple):
    """What a batch system has given."""
    system: str  # as users call it
    cluster: str  # the kind by which its hosts are reached
    hosts: List[Host]


def _added(names: List[Tuple[str, int]]) -> List[Host]:
    """Those of a name are one host; a name that comes often has so many slots."""
    slots: "dict[str, int]" = {}
    times: "dict[str, int]" = {}
    for name, count in names:
        slots[name] = slots.get(name, 0) + count
        times[name] = times.get(name, 0) + 1
    return [Host(name, slots[name] or (times[name] if times[name] > 1 else 0))
            for name in slots]


def parse_hosts(text: str, where: str) -> List[Host]:
    """A line for each host: "n1", "n1 slots=4", "n1:4", or one line for each slot."""
    names = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        match = re.fullmatch(r"((?:[\w.-]+@)?[\w.-]+|(?:[\w.-]+@)?\[[0-9a-fA-F:]+\])(?::(\d+))?",
                             words[0])
        slots = match.group(2) if match else None
        for word in words[1:]:
            name, _, value = word.partition("=")
            if name == "slots" and value.isdigit():
                slots = value
            elif name not in ("max_slots", "max-slots") and not word.isdigit():
                match = None
            elif word.isdigit():
                slots = word
        if match is None or match.group(1).startswith("-"):
            raise Refused(f"{where}, line {number}: {line.strip()!r} is no host; "
                          "\"n1 slots=4\" is one")
        names.append((match.group(1), int(slots or 0)))
    if not names:
        raise Refused(f"{where} has no hosts")
    return _added(names)


def read_hosts(path: str) -> List[Host]:
    """Of a file; where there is none, "n1:4,n2:4" are the hosts themselves."""
    if re.search(r"\w[:,]", path) and "/" not in path and not os.path.exists(path):
        return parse_hosts(path.replace(",", "\n"), f"-H {path}")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse_hosts(file.read(), path)
    except OSError as why:
        raise Refused(f"-H {path}: {why.strerror}; hosts themselves have slots: -H n1:4,n2:4"
                      ) from why


def expand(nodes: str) -> List[str]:
    """Slurm's "gpu[07-10,12],n1": all names."""
    if not re.fullmatch(r"\w(?:[\w.,-]|\[[\d,-]+\])*", nodes):
        raise Refused(f"{nodes!r} is no list of Slurm's nodes")
    names = []
    for item in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", nodes):
        parts = []
        for text, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", item):
            if text:
                parts.append([text])
                continue
            numbers: List[str] = []
            for each in ranges.split(","):
                match = re.fullmatch(r"(\d+)(?:-(\d+))?", each)
                if match is None:
                    raise Refused(f"{nodes!r} is no list of Slurm's nodes")
                first, last = match.group(1), match.group(2) or match.group(1)
                if not 0 <= int(last) - int(first) < 65536:
                    raise Refused(f"{nodes!r} is no list of Slurm's nodes")
                numbers += [str(number).zfill(len(first))
                            for number in range(int(first), int(last) + 1)]
            parts.append(numbers)
        names += ["".join(each) for each in itertools.product(*parts)]
    return names


def repeated(text: str) -> List[int]:
    """Slurm's "2(x3),1": 2 2 2 1."""
    counts: List[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def _slurm(environ: Mapping[str, str]) -> List[Host]:
    names = expand(environ["SLURM_JOB_NODELIST"])
    counts = repeated(environ.get("SLURM_TASKS_PER_NODE", ""))
    if len(counts) != len(names) or "SLURM_NTASKS" not in environ:
        counts = [0] * len(names)
    return [Host(name, count) for name, count in zip(names, counts)]


def _file(variable: str) -> Callable[[Mapping[str, str]], List[Host]]:
    return lambda environ: read_hosts(environ[variable])


def _words(environ: Mapping[str, str]) -> List[Host]:
    return parse_hosts("\n".join(environ["LSB_HOSTS"].split()), "LSB_HOSTS")


def _grid_engine(environ: Mapping[str, str]) -> List[Host]:
    """Lines "host slots queue processors"."""
    try:
        with open(environ["PE_HOSTFILE"], encoding="utf-8") as file:
            lines = [" ".join(line.split()[:2]) for line in file]
    except OSError as why:
        raise Refused(f"PE_HOSTFILE={environ['PE_HOSTFILE']}: {why.strerror}") from why
    return parse_hosts("\n".join(lines), "PE_HOSTFILE")


# The variable that says so, who sets it, how its hosts are reached, and which they are.
ALLOCATIONS = (
    ("SLURM_JOB_NODELIST", "Slurm", "slurm", _slurm),
    ("PE_HOSTFILE", "Grid Engine", "sge", _grid_engine),
    ("LSB_DJOB_HOSTFILE", "LSF", "hostfile", _file("LSB_DJOB_HOSTFILE")),
    ("LSB_HOSTS", "LSF", "hostfile", _words),
    ("PBS_NODEFILE", "PBS", "hostfile", _file("PBS_NODEFILE")),
)


def allocation(environ: Mapping[str, str]) -> Optional[Allocation]:
    """The first that the environment tells of."""
    for variable, system, cluster, hosts in ALLOCATIONS:
        if environ.get(variable):
            return Allocation(system, cluster, hosts(environ))
    return None


def place(hosts: List[Host], workers: Optional[int], per_host: Optional[int]) -> List[int]:
    """Which host has each worker, in order of rank; those of a host follow one another.

    By `per_host` or the hosts' slots, the first hosts first; where nobody has said how many
    fit, evenly.
    """
    slots = [per_host or host.slots for host in hosts]
    if not any(slots):
        count = len(hosts) if workers is None else workers
        shares = [count // len(hosts) + (i < count % len(hosts)) for i in range(len(hosts))]
    else:
        shares = [max(each, 1) for each in slots]
        room = sum(shares)
        count = room if workers is None else workers
        if count > room:
            raise Refused(f"-n {count}: {len(hosts)} hosts have room for {room} workers; name "
                          "more hosts or slots, or give --workers-per-host")
    places: List[int] = []
    for index, share in enumerate(shares):
        places += [index] * min(share, count - len(places))
    return places
