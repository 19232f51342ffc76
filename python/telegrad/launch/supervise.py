"""One start of a job: hosts are reached and looked at, processes run, all ends."""
from __future__ import annotations

import os
import selectors
import shutil
import signal
import time
from typing import Any, Dict, List, NamedTuple, Optional

from . import verdict
from .channel import Channel
from .errors import Refused
from .options import value_of
from .output import Output
from .plan import NUM_PORTS, TELEGRAD, Meeting, Plan, Process, program_name
from .verdict import Ended

FAILURE_S = 5  # in which the others may say why, once one has failed
SERVERS_S = 10  # in which servers may end, once all workers have
TEARDOWN_S = 10  # in which agents must have ended all
MOST_REPLACEMENTS = 100
_OF_PYTHON = "import importlib.metadata as m; print(m.version('telegrad'))"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Outcome(NamedTuple):
    code: int
    text: str  # why, in a sentence; "" of success
    faulty: List[str]  # hosts whose device has failed
    is_cancelled: bool = False


class Supervisor:
    """`channels`: one for each of the plan's hosts, in that order."""

    def __init__(self, options: Any, plan: Plan, channels: List[Channel], output: Output,
                 is_local: bool) -> None:
        self._options, self._plan, self._output = options, plan, output
        self._channels, self._is_local = channels, is_local
        self._selector = selectors.DefaultSelector()
        # Who stops the launcher of one host has stopped its job, too.
        self._silence = 0 if is_local else options.lost_timeout
        self._running: Dict[int, Process] = {}
        self._ended: List[Ended] = []
        # Of a job that goes on without some: those, and who came in their place.
        self._elastic = options.elastic or ""
        if program_name(options.program) == "telegrad-train":
            self._elastic = value_of(options.program, "--elastic") or ""
        self._spared: List[Ended] = []
        self._newcomers: List[int] = []
        self._faulty: List[str] = []
        self._signal = 0  # by which a user ends it
        self._signals: List[int] = []  # that nobody has acted on
        self._end_at: Optional[float] = None
        self._give_up_at: Optional[float] = None
        self._is_ending = False
        self._has_given_up = False
        self._has_failed: Dict[str, str] = {}  # host -> why it cannot be used

    # --- until all hosts can be used

    def connect(self, probe: Optional[List[str]] = None) -> bool:
        """Whether `probe` could be run on the first host.

        Raises:
            Refused: names every host that cannot be used.
        """
        waiting = list(self._channels)
        deadlines: Dict[Channel, float] = {}
        while waiting or deadlines:
            while waiting and len(deadlines) < self._options.connections:
                channel = waiting.pop(0)
                self._open(channel)
                deadlines[channel] = time.monotonic() + self._options.connect_timeout
            self._step(min(deadlines.values()) - time.monotonic())
            if self._signals:
                number = self._signals[0]
                raise Refused(f"ended by {signal.Signals(number).name}", 128 + number)
            for channel, deadline in list(deadlines.items()):
                if channel.is_ready and not channel.is_asked:
                    channel.is_asked = True
                    channel.tell(**self._question(probe if channel is self._channels[0] else None))
                if channel.facts is not None or channel.host in self._has_failed:
                    del deadlines[channel]
                elif time.monotonic() > deadline:
                    self._has_failed[channel.host] = (
                        f"no answer within {self._options.connect_timeout} s"
                        + (f" ({channel.noise[-1]})" if channel.noise else ""))
        self._judge_hosts()
        first = self._channels[0].facts
        return bool(first and first.get("probe"))

    def _open(self, channel: Channel) -> None:
        channel.open()
        for descriptor, stream in channel.descriptors().items():
            self._selector.register(descriptor, selectors.EVENT_READ, (channel, stream))

    def _programs(self) -> List[List[str]]:
        programs = [self._options.program]
        if self._options.server_program and self._plan.num_servers:
            programs.append([self._options.server_program])
        return programs

    def _question(self, probe: Optional[List[str]]) -> Dict[str, Any]:
        programs, files, versions = {}, [], []
        for words in self._programs():
            programs[words[0]] = words[0] if "/" in words[0] else shutil.which(words[0])
            name = program_name(words)
            if name in TELEGRAD:
                versions.append([words[0], "--version"])
            elif name.startswith("python"):
                script = next((word for word in words[1:] if not word.startswith("-")), "")
                files += [script] if script.endswith(".py") else []
                if not self._is_local:
                    versions.append([words[0], "-c", _OF_PYTHON])
        names = [] if self._is_local else [self._name_of(self._channels[0].host)]
        return {"kind": "check", "programs": programs, "files": files, "versions": versions,
                "resolve": names, "ports": NUM_PORTS, "probe": probe,
                "folder": self._options.sync_dst_dir or self._options.workdir or os.getcwd()}

    @staticmethod
    def _name_of(host: str) -> str:
        return host.rpartition("@")[2].strip("[]")

    def _judge_hosts(self) -> None:
        problems = [f"{host}: {why}" for host, why in self._has_failed.items()]
        code = verdict.JOIN_TIMEOUT
        told = [channel for channel in self._channels if channel.facts]
        for channel in told:
            assert channel.facts
            for each in channel.facts["missing"]:
                problems.append(f"{channel.host}: {each} is not there")
                code = 2
        for number, words in enumerate(self._question(None)["versions"]):
            for channel in told:
                assert channel.facts
                its = (channel.facts.get("versions") or [])[number:number + 1]
                if its and its[0].startswith("cannot be run") and words[-1] == "--version":
                    problems.append(f"{channel.host}: {words[0]} {its[0]}")
                    code = 2
        if problems:
            raise Refused("; ".join(problems), code)
        for channel in told[1:]:
            assert channel.facts and told[0].facts
            if channel.facts["versions"] != told[0].facts["versions"]:
                pairs = zip(self._programs(), told[0].facts["versions"], channel.facts["versions"])
                words, first, other = next(pair for pair in pairs if pair[1] != pair[2])
                raise Refused(f"{words[0]}: {told[0].host} has {first}, {channel.host} has "
                              f"{other}; install one version on all hosts", verdict.MISMATCH)

    def meeting(self, restarts: int) -> Meeting:
        """What the hosts have told says where members meet."""
        first = self._channels[0].facts
        assert first
        port = self._options.port or first["port"]
        if not port:
            raise Refused(f"{self._channels[0].host}: no {NUM_PORTS} free ports in a row; "
                          "give --port")
        job_id = f"launch-{os.urandom(8).hex()}"
        return Meeting(self._options.address or self._address(first), port, job_id, restarts)

    def _address(self, first: Dict[str, Any]) -> str:
        if self._is_local:
            return "127.0.0.1"
        name = self._name_of(self._channels[0].host)
        puzzled = [channel.host for channel in self._channels
                   if channel.facts and channel.facts["unknown"]]
        is_shared = name in _LOOPBACK and len(self._channels) > 1
        if not puzzled and not is_shared:
            return name
        if first["reached"] and first["reached"][0] not in _LOOPBACK:
            return str(first["reached"][0])
        raise Refused(f"{', '.join(puzzled) or 'other hosts'} cannot reach {name} by that name; "
                      "give --address")

    # --- while it runs

    def run(self, processes: List[Process]) -> Outcome:
        secret = os.urandom(32).hex()
        for number in range(len(self._channels)):
            self._start(number, [each for each in processes if each.host == number], secret)
        beat_at = time.monotonic()
        while self._running:
            self._step(self._seconds_left(beat_at))
            self._decide()
            if self._silence and time.monotonic() >= beat_at:
                beat_at = time.monotonic() + self._silence / 4
                for channel in self._channels:
                    channel.tell(kind="beat")
        return self._outcome()

    def _start(self, host: int, own: List[Process], secret: str = "") -> None:
        self._running.update((each.number, each) for each in own)
        self._channels[host].tell(
            kind="start", secret=secret, most_silence=self._silence, stays=bool(self._elastic),
            processes=[{"number": each.number, "words": each.words, "variables": each.variables}
                       for each in own])

    def note_signal(self, number: int) -> None:
        """A user's, whenever it comes; `run` acts on it. A second one kills."""
        self._signals.append(number)

    def _seconds_left(self, beat_at: float) -> Optional[float]:
        times = [at for at in (self._end_at, self._give_up_at) if at is not None]
        times += [beat_at] if self._silence else []
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _decide(self) -> None:
        while self._signals:
            self._signal = self._signals.pop(0)
            self._end_all(self._signal)
        now = time.monotonic()
        roles = {process.role for process in self._running.values()}
        if self._end_at is None and not self._is_ending:
            if verdict.culprit(self._ended):
                self._end_at = now + FAILURE_S
            elif roles and "worker" not in roles and not self._plan.serves_only:
                self._end_at = now + SERVERS_S
        if self._end_at is not None and now >= self._end_at:
            self._end_all(signal.SIGTERM)
        if self._give_up_at is not None and now >= self._give_up_at:
            for process in self._running.values():
                self._output.say(f"{self._title(process)} did not end: its host does not answer")
            self._running.clear()
            self._has_given_up = True

    def _end_all(self, number: int) -> None:
        self._end_at = None
        self._is_ending = True
        self._give_up_at = time.monotonic() + TEARDOWN_S
        for channel in self._channels:
            if channel.is_ready:
                channel.tell(kind="end", signal=int(number))

    def _title(self, process: Process) -> str:
        if self._is_local:
            return process.name
        return f"{process.name}@{self._channels[process.host].host}"

    def _step(self, seconds: Optional[float]) -> None:
        for key, _ in self._selector.select(seconds if seconds is None else max(0, seconds)):
            if key.data is None:
                os.read(key.fd, 4096)  # a signal, which has been noted
                continue
            channel, stream = key.data
            lines = channel.read(key.fd, stream)
            if lines is None:
                self._selector.unregister(key.fd)
                if stream == 1:
                    self._lost(channel)
            elif stream == 2:
                self._noise(channel, lines)
            else:
                for message in channel.messages(lines):
                    self._hear(channel, message)

    def wake_by(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, None)

    def _noise(self, channel: Channel, lines: List[str]) -> None:
        for line in lines:
            channel.note(line)
            if line.strip() and channel.is_ready and not self._is_ending:
                self._output.of_host(channel.host, line)

    def _hear(self, channel: Channel, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "hello":
            channel.is_ready = True
        elif kind == "facts":
            channel.facts = message
        elif message.get("number") in self._running:
            process = self._running[message["number"]]
            if kind == "out":
                self._output.show(process.role, process.rank, self._title(process),
                                  message["stream"], message["text"])
            elif kind == "exit":
                del self._running[process.number]
                self._note_end(process, channel, message["code"])

    def _note_end(self, process: Process, channel: Channel, code: int) -> None:
        if verdict.exit_code(code) == verdict.DEVICE_FAULT:
            self._faulty.append(channel.host)
        was_ended = self._is_ending and not verdict.culprit(self._ended) and not self._signal
        if was_ended:
            return
        ended = Ended(self._title(process), code)
        was_lost = code < 0 or code == verdict.FENCED
        if code == 0 or not self._goes_on_without(process) or not (
                was_lost or process.number in self._newcomers):
            self._ended.append(ended)
            return
        self._spared.append(ended)
        may_come = was_lost and ":" in self._elastic and len(self._newcomers) < MOST_REPLACEMENTS
        self._output.say(verdict.how(ended) + "; " + (
            "another one starts in its place" if may_come else "the others may go on"))
        if may_come:
            self._newcomers.append(process.number)
            self._start(process.host, [process])

    def _goes_on_without(self, process: Process) -> bool:
        has_scheduler = process.role == "scheduler" or (
            not self._plan.num_servers and process.rank == 0)
        return bool(self._elastic) and not has_scheduler and not self._is_ending

    def _lost(self, channel: Channel) -> None:
        if not channel.facts:
            channel.wait_for_noise(2)
            self._has_failed[channel.host] = channel.why()
            return
        own = [each for each in self._running.values()
               if self._channels[each.host] is channel]
        if own and not self._is_ending:
            self._output.say(f"the connection to {channel.host} has ended: {channel.why()}")
            is_spared = all(self._goes_on_without(each) for each in own)
            (self._spared if is_spared else self._ended).append(
                Ended(f"the connection to {channel.host}", 20))
        for process in own:
            del self._running[process.number]

    def _outcome(self) -> Outcome:
        if self._signal:
            return Outcome(128 + self._signal, f"ended by {signal.Signals(self._signal).name}",
                           [], True)
        ended = self._ended
        if verdict.culprit(ended) or not ended:
            ended = self._spared + ended
        code = verdict.verdict(ended)
        first = verdict.culprit(ended)
        if first is None:
            return Outcome(0, "", [])
        return Outcome(code, f"the job ended with {verdict.name_of(code)}: {verdict.how(first)}",
                       self._faulty)

    def close(self) -> None:
        """Nothing is left after it. Also after an error, at any time."""
        for channel in self._channels:
            channel.close()
        deadline = time.monotonic() + (0 if self._has_given_up else TEARDOWN_S)
        for channel in self._channels:
            channel.wait(max(0.1, deadline - time.monotonic()))
        self._selector.close()
