"""Runs functions of a test file as the ranks of a job, each in a process of its own."""
import json
import logging
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                             "scenarios"))
import seen  # noqa: E402

TIMEOUT_S = 120
SKIPPED = 77


def free_port():
    """Where nobody listens; none that the system gives to a connection of its own choice,
    which could have it until a rank listens there."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.randrange(min(first, 20000), max(first, 32000))
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def encoders(num=2):
    """The ranks of each codec: those of a host have one where hosts sum first."""
    ranks = list(range(num))
    return [ranks] if os.environ.get("TELEGRAD_TIER1") == "on" else [[each] for each in ranks]


def pushes(rank, num=2):
    """Whether it has its codec."""
    return rank in [ranks[0] for ranks in encoders(num)]


def skip(why):
    """Ends the test file: its tool is not here, which CI does not accept."""
    print(f"skipped: {why}")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)


def refused(kind, work):
    """The text of the error of that kind that `work` must raise."""
    try:
        work()
    except kind as why:
        return str(why)
    raise AssertionError(f"no {kind}")


class EndsSlowly:
    """Keeps the interpreter's end going for a while."""

    def __init__(self):
        self.sleep = time.sleep

    def __del__(self):
        self.sleep(1)


class Forked:
    """A process that runs a Python file, with the part of Popen that tests use. It is a fork
    of the test's process from before its tests, which has imported what the file imports:
    of torch that takes more than a second of a processor."""
    server = None  # main's, by a socket

    def __init__(self, words, environment):
        reads, writes = zip(*(os.pipe() for _ in range(3)))
        socket.send_fds(self.server, [json.dumps([words, environment]).encode()], writes)
        for fd in writes:
            os.close(fd)
        self.status, self.stdout, self.stderr = (open(fd, encoding="utf-8") for fd in reads)
        self.pid = int(self.status.readline())
        self.words = words
        self.returncode = None

    def poll(self):
        if self.returncode is None and select.select([self.status], [], [], 0)[0]:
            self.returncode = int(self.status.readline())
        return self.returncode

    def wait(self, timeout=TIMEOUT_S):
        select.select([self.status], [], [], timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout):
        texts = {}
        files = self.stdout, self.stderr, self.status
        readers = [threading.Thread(target=lambda file=file: texts.update({file: file.read()}),
                                    daemon=True) for file in files]
        deadline = time.monotonic() + timeout
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0, deadline - time.monotonic()))
        if len(texts) < len(files):
            raise subprocess.TimeoutExpired(self.words, timeout)
        if self.returncode is None:
            self.returncode = int(texts[self.status])
        for file in files:
            file.close()
        return texts[self.stdout], texts[self.stderr]

    @staticmethod
    def serve(requests):
        """Makes the processes, until the tests have ended; returns in each, with what it is
        to run. Its parent tells how it ends."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            request, fds, _, _ = socket.recv_fds(requests, 1 << 20, 3)
            if not request:
                os._exit(0)
            if os.fork() == 0:
                break
            for fd in fds:
                os.close(fd)
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status, *outputs = fds
        pid = os.fork()
        if pid:
            for fd in (0, 1, 2, *outputs):
                os.close(fd)
            os.write(status, b"%d\n" % pid)
            code = os.waitpid(pid, 0)[1]
            os.write(status, b"%d" % (-os.WTERMSIG(code) if os.WIFSIGNALED(code)
                                      else os.WEXITSTATUS(code)))
            os._exit(0)
        os.close(status)
        for fd, output in enumerate(outputs, 1):
            os.dup2(output, fd)
            os.close(output)
        random.seed()
        words, environment = json.loads(request)
        os.environ.clear()
        os.environ.update(environment)
        return words


class Ranks:
    """Processes that run `function` of `file`, with torchrun's variables; `runner`: what
    Python is given before the file; `on`: the command of a rank, as it runs elsewhere. They
    are forks, but for ranks with one of these, and where `forks` is False. `only`: some."""

    def __init__(self, file, function, num=2, argument=None, runner=(), on=None, forks=True,
                 only=None, **environment):
        common = {**os.environ, "WORLD_SIZE": str(num), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": str(free_port()), "ARGUMENT": json.dumps(argument),
                  "OMP_NUM_THREADS": "1", **environment}
        self.port = common["MASTER_PORT"]
        words = [file, "--rank", function]
        self.processes = []
        for rank in range(num) if only is None else only:
            own = dict(common, RANK=str(rank), LOCAL_RANK=str(rank))
            if runner or on or not (forks and Forked.server):
                command = [sys.executable, "-B", *runner, *words]
                self.processes.append(subprocess.Popen(
                    on(rank, command) if on else command, env=own, text=True,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            else:
                self.processes.append(Forked(words, own))

    def line(self, rank):
        """The next line that this rank prints."""
        return self.processes[rank].stdout.readline().strip()

    def kill(self, rank, number=signal.SIGKILL):
        self.processes[rank].send_signal(number)

    def wait(self):
        """(code, stdout, stderr) by rank; whoever takes too long is ended."""
        texts = texts_of(self.processes)
        for process, (_, err) in zip(self.processes, texts):
            seen.note(process.returncode, err)
        return [(process.returncode, *text)
                for process, text in zip(self.processes, texts)]

    def results(self):
        """What each rank printed last, as JSON; all must have ended well."""
        ended = self.wait()
        for rank, (code, out, err) in enumerate(ended):
            assert code == 0, f"rank {rank} ended with {code}:\n{out}\n{err}"
        return [json.loads(out.strip().splitlines()[-1]) for _, out, _ in ended]


def texts_of(processes):
    """(stdout, stderr) of each, read side by side: one that cannot write does not end, and
    others wait for it. Whoever takes too long is ended."""
    try:
        with ThreadPoolExecutor(len(processes)) as pool:
            return list(pool.map(lambda each: each.communicate(timeout=TIMEOUT_S), processes))
    finally:
        for process in processes:
            process.kill()


def run_all(commands, environment):
    """Python with these arguments, as ranks; (code, stdout, stderr) of each."""
    processes = [subprocess.Popen([sys.executable, "-B", *command],
                                  env=dict(environment, RANK=str(rank)),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) for rank, command in enumerate(commands)]
    texts = texts_of(processes)
    for process, (out, err) in zip(processes, texts):
        assert process.returncode == 0, f"{process.returncode}:\n{out}\n{err}"
    return [(process.returncode, *text) for process, text in zip(processes, texts)]


def logged(seen=logging.LogRecord.getMessage):
    """A list of what telegrad logs from now on: `seen` of each record."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(seen(record))
    logging.getLogger("telegrad").addHandler(handler)
    return lines


def main(functions):
    """Of a test file: runs its tests, or one function as a rank."""
    if len(sys.argv) == 3 and sys.argv[1] == "--rank":
        # A shell starts what runs in the background with Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        result = functions[sys.argv[2]](json.loads(os.environ["ARGUMENT"]))
        print(json.dumps(result), flush=True)
        return
    requests, Forked.server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    if os.fork():
        requests.close()
        unittest.main()
    else:
        Forked.server.close()
        Forked.server = None
        sys.argv = Forked.serve(requests)
        runpy.run_path(sys.argv[0], run_name="__main__")  # anew: with its own variables
