"""Which processes a job has, where, and with which words and variables."""
from __future__ import annotations

import argparse
import os
from typing import Dict, List, Mapping, NamedTuple, Optional

from .agent_words import SECRET_FILE
from .hosts import Host, place
from .options import handed_on, has_flag, variables

NUM_PORTS = 129  # of a comparison's runs, and one beside
TELEGRAD = ("telegrad-train", "telegrad-server", "telegrad-perf")


class Process(NamedTuple):
    number: int
    role: str  # scheduler, server, worker
    rank: int
    host: int
    words: List[str]
    variables: Dict[str, str]

    @property
    def name(self) -> str:
        return self.role if self.role == "scheduler" else f"{self.role} {self.rank}"


class Meeting(NamedTuple):
    """Where the members of one start find each other."""
    address: str
    port: int
    job_id: str
    restarts: int = 0


def program_name(words: List[str]) -> str:
    return os.path.basename(words[0])


class Plan:
    """`hosts`: that may be used; those without a process are left out."""

    def __init__(self, options: argparse.Namespace, hosts: List[Host], is_local: bool,
                 environ: Mapping[str, str]) -> None:
        self._options, self._is_local, self._environ = options, is_local, environ
        places = place(hosts, options.workers, options.workers_per_host)
        self.num_workers, self.num_servers = len(places), options.servers
        self._by_rank = program_name(options.program) == "telegrad-perf"
        self.serves_only = program_name(options.program) == "telegrad-server"
        parts = []
        if self.num_servers and not self._by_rank:
            parts.append(("scheduler", 0, 0))
        if not self.serves_only:
            parts += [("worker", rank, index) for rank, index in enumerate(places)]
        parts += [("server", rank, rank % len(hosts)) for rank in range(self.num_servers)]
        used = sorted({index for _, _, index in parts})
        self.hosts = [hosts[index].name for index in used]
        self._parts = [(role, rank, used.index(index)) for role, rank, index in parts]
        self._local_ranks = {}
        for role, rank, host in self._parts:
            if role == "worker":
                here = [each for each in self._local_ranks.values() if each[0] == host]
                self._local_ranks[rank] = (host, len(here))

    def processes(self, meeting: Meeting, extra: Optional[List[str]] = None) -> List[Process]:
        """`extra`: words that the program gets, too."""
        return [Process(number, role, rank, host, self._words(role, extra or []),
                        self._variables(role, rank, meeting))
                for number, (role, rank, host) in enumerate(self._parts)]

    def _words(self, role: str, extra: List[str]) -> List[str]:
        words = list(self._options.program) + extra
        if role != "worker" and self._options.server_program:
            words = [self._options.server_program]
        if program_name(words) not in TELEGRAD:
            return words
        added = []
        if self._by_rank and self.num_servers and not has_flag(words, "--servers"):
            added += ["--servers", str(self.num_servers)]
        if not self._is_local and not has_flag(words, "--bind"):
            added += ["--bind", self._options.bind]
        if not has_flag(words, "--secret-file") and not has_flag(words, "--insecure"):
            added += ["--secret-file", SECRET_FILE]
        return words + added

    def _variables(self, role: str, rank: int, meeting: Meeting) -> Dict[str, str]:
        options = self._options
        found = {} if self._is_local else handed_on(self._environ)
        found["TELEGRAD_SECRET_FILE"] = SECRET_FILE
        if not self._is_local:
            found["TELEGRAD_BIND"] = options.bind
        if self.num_servers and not self._by_rank:
            found.update(self._dmlc(role, rank, meeting))
        if role == "worker" or self._by_rank:
            found.update(self._torchrun(role, rank, meeting))
        if options.elastic:
            found["TELEGRAD_ELASTIC"] = options.elastic
        if role == "worker" and options.account:
            found["TELEGRAD_LOG_JSON"] = "-"
        found.update(variables(options.env, self._environ))
        if role == "worker":
            found.update(variables(options.env_worker, self._environ))
        else:
            found.update(variables(options.env_server, self._environ))
        return found

    def _dmlc(self, role: str, rank: int, meeting: Meeting) -> Dict[str, str]:
        found = {"DMLC_ROLE": role, "DMLC_NUM_WORKER": str(self.num_workers),
                 "DMLC_NUM_SERVER": str(self.num_servers),
                 "DMLC_PS_ROOT_URI": meeting.address, "DMLC_PS_ROOT_PORT": str(meeting.port),
                 "DMLC_JOB_CLUSTER": options_name(self._options), "DMLC_TASK_ID": str(rank)}
        if role != "scheduler":
            found["DMLC_RANK"] = str(rank)
            found[f"DMLC_{role.upper()}_ID"] = str(rank)
        return found

    def _torchrun(self, role: str, rank: int, meeting: Meeting) -> Dict[str, str]:
        world = self.num_workers
        host, local_rank, local_size = 0, 0, 1
        if role == "worker":
            host, local_rank = self._local_ranks[rank]
            local_size = sum(each[0] == host for each in self._local_ranks.values())
        if self._by_rank:  # servers are the last ranks
            world += self.num_servers
            rank += self.num_workers if role == "server" else 0
        # A scheduler of its own has the first port.
        shared = self.num_servers and not self._by_rank
        return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(local_size), "GROUP_RANK": str(host),
                "MASTER_ADDR": meeting.address,
                "MASTER_PORT": str(meeting.port + (NUM_PORTS - 1 if shared else 0)),
                "TORCHELASTIC_RUN_ID": meeting.job_id,
                "TORCHELASTIC_RESTART_COUNT": str(meeting.restarts)}


def options_name(options: argparse.Namespace) -> str:
    return options.cluster or "local"
