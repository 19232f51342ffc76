"""What telegrad-launch does, from its command line to its exit code."""
from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, List, Optional, Tuple

from . import agent_words, verdict
from .account import Account
from .channel import Channel
from .clusters import KINDS
from .clusters.ssh import ssh_words
from .errors import Refused
from .hosts import Host, allocation, read_hosts
from .options import has_flag, need_tool, parse, value_of
from .output import Output
from .plan import Meeting, Plan, program_name
from .supervise import Outcome, Supervisor

_LONGEST_PAUSE_S = 60
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def find_hosts(options: argparse.Namespace) -> List[Host]:
    """Also chooses `options.cluster`, where nobody has."""
    found = None if options.cluster == "local" else allocation(os.environ)
    if options.hostfile:
        options.cluster = options.cluster or "ssh"
        return read_hosts(options.hostfile)
    if found is not None:
        options.cluster = options.cluster or found.cluster
        return found.hosts
    if options.cluster in (None, "local"):
        options.cluster = "local"
        return [Host("localhost", options.workers or 1)]
    if options.cluster == "slurm":  # which salloc will find
        return []
    raise Refused(f"--cluster {options.cluster} needs hosts: give -H FILE, or start it inside an "
                  "allocation of Slurm, Grid Engine, PBS or LSF")


def synchronise(options: argparse.Namespace, hosts: List[str]) -> None:
    """This folder on each of the hosts."""
    if options.cluster not in ("ssh", "hostfile"):
        raise Refused(f"--sync-dst-dir copies over ssh, not with --cluster {options.cluster}")
    need_tool("rsync", "--sync-dst-dir copies by it")
    from concurrent.futures import ThreadPoolExecutor  # nothing else needs it

    def copy(host: str) -> Tuple[str, "subprocess.CompletedProcess[bytes]"]:
        return host, subprocess.run(
            ["rsync", "-az", "--rsh", shlex.join(ssh_words(options)), "./",
             f"{host}:{options.sync_dst_dir}/"], stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    with ThreadPoolExecutor(options.connections) as pool:
        for host, done in pool.map(copy, hosts):
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise Refused(f"{host}: rsync to {options.sync_dst_dir}: "
                              f"{(said or ['it failed'])[0]}", verdict.JOIN_TIMEOUT)


class Launcher:
    def __init__(self, options: argparse.Namespace, output: Output) -> None:
        self._options, self._output = options, output
        self._kind: Any = KINDS[options.cluster]
        self._is_local = options.cluster == "local"
        self._supervisor: Optional[Supervisor] = None
        self._is_cancelled = False
        self._num_servers = 0  # of the last start

    def plan(self, hosts: List[Host]) -> Plan:
        return Plan(self._options, hosts, self._is_local, os.environ)

    def _channels(self, plan: Plan) -> List[Channel]:
        command = agent_words.command(sys.executable if self._is_local else self._options.python)
        return [Channel(host, self._kind.reach(host, command, self._options))
                for host in plan.hosts]

    def show(self, hosts: List[Host]) -> None:
        """--dry-run."""
        plan = self.plan(hosts)
        address = self._options.address or (
            "127.0.0.1" if self._is_local else plan.hosts[0].rpartition("@")[2])
        port = self._options.port or 20000
        for channel in [] if self._is_local else self._channels(plan):
            print(shlex.join(channel.words))
        for each in plan.processes(Meeting(address, port, "launch-0")):
            variables = [f"{name}={value}" for name, value in sorted(each.variables.items())]
            where = "" if self._is_local else f"@{plan.hosts[each.host]}"
            print(f"[{each.name}{where}] {shlex.join([*variables, *each.words])}")

    def on_signal(self, number: int, _: Any) -> None:
        self._is_cancelled = True
        if self._supervisor is not None:
            self._supervisor.note_signal(number)

    def run(self, hosts: List[Host]) -> int:
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self.on_signal)
        if self._options.sync_dst_dir:
            synchronise(self._options, self.plan(hosts).hosts)
        account = Account(self._options.account) if self._options.account else None
        if account is not None:
            self._output.listener = account.hear

        def add_up(outcome: Outcome, starts: int) -> None:
            if account is not None:
                account.write(self._options, [host.name for host in hosts], self._num_servers,
                              starts, outcome)

        try:
            outcome, restarts = self._until_the_end(hosts, woken)
        except Refused as why:
            add_up(Outcome(why.code, str(why), []), 1)
            raise
        add_up(outcome, restarts + 1)
        return outcome.code

    def _until_the_end(self, hosts: List[Host], woken: int) -> Tuple[Outcome, int]:
        """The last start's outcome, and how many there were before it."""
        restarts = 0
        while True:
            outcome = self._once(hosts, restarts, woken)
            if outcome.text:
                self._output.say(outcome.text)
            hosts = [host for host in hosts if host.name not in outcome.faulty]
            if not self._may_restart(outcome, restarts, hosts):
                return outcome, restarts
            restarts += 1
            share = 0.8 + 0.4 * os.urandom(1)[0] / 255  # so that jobs do not come all at once
            pause = min(2 ** (restarts - 1), _LONGEST_PAUSE_S) * share
            self._output.say(f"start {restarts} of {self._options.restart} again in {pause:.0f} s")
            self._sleep(pause)
            if self._is_cancelled:
                return outcome, restarts - 1

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._is_cancelled:
            time.sleep(0.1)

    def _once(self, hosts: List[Host], restarts: int, woken: int) -> Outcome:
        plan = self.plan(hosts)
        self._num_servers = plan.num_servers
        self._options.workers = plan.num_workers  # of the job, whatever hosts are left later
        supervisor = Supervisor(self._options, plan, self._channels(plan), self._output,
                                self._is_local)
        supervisor.wake_by(woken)
        self._supervisor = supervisor
        try:
            has_checkpoint = supervisor.connect(self._probe() if restarts else None)
            meeting = supervisor.meeting(restarts)
            return supervisor.run(plan.processes(meeting, ["--resume"] if has_checkpoint else []))
        except Refused as why:
            if restarts == 0:
                raise
            return Outcome(why.code, str(why), [])
        finally:
            self._supervisor = None
            supervisor.close()

    def _probe(self) -> Optional[List[str]]:
        """Ends with 0 where there is a checkpoint to go on from."""
        words = self._options.program
        folder = value_of(words, "--checkpoint")
        if program_name(words) != "telegrad-train" or not folder or has_flag(words, "--resume"):
            return None
        return [words[0], "--show-checkpoint", folder]

    def _may_restart(self, outcome: Outcome, restarts: int, hosts: List[Host]) -> bool:
        """`hosts`: without those whose device has failed."""
        if self._is_cancelled or outcome.is_cancelled or restarts >= self._options.restart:
            return False
        if outcome.code not in verdict.RETRYABLE | {verdict.DEVICE_FAULT} or not hosts:
            return False
        try:
            self.plan(hosts)
        except Refused as why:
            self._output.say(f"the other hosts are too few to start again: {why}")
            return False
        return True


def version() -> str:
    """Of the wheel, else of the sources."""
    from . import about
    return about.version()


def main(arguments: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    if options.version:
        print(version())
        return 0
    output = Output()
    try:
        if options.status is not None:
            from . import status
            return status.show(options.status)
        if options.merge_timelines:
            from . import timelines
            return timelines.merge_folder(options.merge_timelines)
        options.this_command = [os.path.dirname(os.path.abspath(__file__)), *arguments]
        if options.form:
            from . import submit
            print(submit.text(options), end="")
            return 0
        if options.cluster == "kubernetes":
            KINDS["kubernetes"].prepare(options, os.environ)
            return KINDS["kubernetes"].start(options)
        hosts = find_hosts(options)
        prepare = getattr(KINDS[options.cluster], "prepare", None)
        if prepare is not None and not (options.dry_run and hosts):
            prepare(options, os.environ)
        launcher = Launcher(options, output)
        if options.dry_run:
            launcher.show(hosts)
            return 0
        return launcher.run(hosts)
    except Refused as why:
        output.say(str(why))
        return why.code
