"""The processes of one host: starts them, hands on what they print, ends them.

The launcher sends this file itself, over whatever reaches the host, so that nothing needs to
be installed there but Python 3.6. It knows nothing of the rest of the package. Messages are
lines of JSON: `check`, `start`, `beat` and `end` come on standard input; what is told goes to
standard output. When standard input ends, or is silent for too long, whoever started this is gone,
and all ends.
"""
import ctypes
import fcntl
import glob
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SECRET_FILE = "@SECRET_FILE@"  # stands for its path in arguments and variables
GRACE_S = 3  # between SIGTERM and SIGKILL
SETTLED_S = 60  # a folder this old has its lock
VERSION_S = 10
LONGEST_LINE = 1 << 20
GOES_ON = b" [this line goes on]"  # behind a longer one's parts
# Of what has started this, and wrong for the processes that it starts.
FOREIGN = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count):
    """The first of so many in a row that nobody listens on, below those that the kernel
    gives; 0: none were found."""
    for _ in range(50):
        first = 20000 + int.from_bytes(os.urandom(2), "big") % 11000
        try:
            for port in range(first, first + count):
                with socket.socket() as trial:
                    trial.bind(("", port))
            return first
        except OSError:
            pass
    return 0


def version_of(words):
    """What it prints of itself; None: it cannot be run."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=VERSION_S)
    except (OSError, subprocess.SubprocessError) as why:
        return "cannot be run: %s" % why
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0:
        return "cannot be run: %s" % (text.splitlines() or ["exit code %d" % done.returncode])[-1]
    return text


def resolves(name):
    try:
        socket.getaddrinfo(name, None)
        return True
    except OSError:
        return False


def own_folder():
    """A new one. Those of agents that were killed go: nobody holds their locks any more."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), "telegrad-launch-*")):
        try:
            about = os.lstat(path)
            if about.st_uid != os.geteuid() or time.time() - about.st_mtime < SETTLED_S:
                continue
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(folder)
        except OSError:
            pass  # it is in use, or has gone
    path = tempfile.mkdtemp(prefix="telegrad-launch-")
    # Held until this process ends, however it does; its children do not get it.
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)
    return path


class Process:
    def __init__(self, number, started):
        self.number, self.started = number, started
        self.code = None
        self.open = {}  # descriptor -> (1 or 2, what has no end of line yet)
        for stream, pipe in ((1, started.stdout), (2, started.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self.open[pipe.fileno()] = (stream, b"")

    def signal(self, number):
        try:
            os.killpg(self.started.pid, number)
        except OSError:
            pass  # it has ended


class Agent:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.processes = {}  # number -> Process
        self.folder = None
        self.programs = {}  # as they are called -> their paths here
        self.input = b""
        self.kill_at = None
        self.most_silence = 0  # seconds; 0: any
        self.heard_at = 0.0
        self.is_done = False

    def tell(self, **message):
        data = (json.dumps(message) + "\n").encode()
        while data:
            try:
                data = data[os.write(1, data):]
            except OSError:
                self.end(signal.SIGTERM)  # nobody hears it
                return

    def check(self, wanted):
        """What decides whether the processes can be started here."""
        folder = wanted["folder"]
        if os.path.isdir(folder):
            os.chdir(folder)
        else:
            self.tell(kind="facts", missing=["the folder %s" % folder])
            return
        for word, path in wanted["programs"].items():
            there = path is not None and os.access(path, os.X_OK) and not os.path.isdir(path)
            self.programs[word] = path if there else shutil.which(word)
        missing = ["the program %s" % word for word, path in self.programs.items()
                   if path is None]
        missing += ["the file %s" % each for each in wanted["files"]
                    if not os.path.exists(each)]
        versions = [] if missing else [version_of(self.found(words))
                                         for words in wanted["versions"]]
        self.tell(kind="facts", missing=missing, versions=versions, host=socket.gethostname(),
                  unknown=[name for name in wanted["resolve"] if not resolves(name)],
                  reached=os.environ.get("SSH_CONNECTION", "").split(" ")[2:3],
                  port=free_ports(wanted["ports"]), probe=self.is_done_well(wanted["probe"]))

    def found(self, words):
        return [self.programs.get(words[0], words[0])] + words[1:]

    def is_done_well(self, words):
        return bool(words) and not version_of(self.found(words)).startswith("cannot be run")

    def start(self, message):
        """All processes, or none: the first that cannot be started ends the others."""
        self.is_done = not message["stays"]  # once these have ended
        self.most_silence = message["most_silence"]
        if message["secret"]:
            self.folder = own_folder()
            self.secret = os.path.join(self.folder, "secret")
            file = os.open(self.secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(file, bytes.fromhex(message["secret"]))
            os.close(file)
        base = {name: value for name, value in os.environ.items()
                if not name.startswith(FOREIGN)}
        for each in message["processes"]:
            words = [self.filled(word) for word in self.found(each["words"])]
            variables = dict(base)
            variables.update((name, self.filled(value))
                             for name, value in each["variables"].items())
            try:
                started = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, env=variables, start_new_session=True,
                    preexec_fn=_die_with_parent)
            except OSError as why:
                self.tell(kind="out", number=each["number"], stream=2, text=str(why))
                self.tell(kind="exit", number=each["number"], code=2)
                self.end(signal.SIGTERM)
                return
            process = Process(each["number"], started)
            self.processes[process.number] = process
            for pipe in process.open:
                self.selector.register(pipe, selectors.EVENT_READ, process)

    def filled(self, text):
        return self.secret if text == SECRET_FILE else text

    def end(self, number):
        """A second time at once."""
        is_second = self.kill_at is not None
        self.is_done = True
        for process in self.processes.values():
            process.signal(signal.SIGKILL if is_second else number)
        self.kill_at = time.monotonic() + (0 if is_second else GRACE_S)

    def seconds_left(self):
        """Until something is due; None: nothing is."""
        now = time.monotonic()
        if self.kill_at is not None:
            return self.kill_at - now
        return self.heard_at + self.most_silence - now if self.most_silence else None

    def act_on_time(self):
        if self.kill_at is None:
            self.end(signal.SIGTERM)
        else:
            for process in self.processes.values():
                process.signal(signal.SIGKILL)
            self.kill_at = time.monotonic() + 0.1

    def hear(self):
        data = os.read(0, 1 << 16)
        self.heard_at = time.monotonic()
        if not data:
            self.selector.unregister(0)
            self.end(signal.SIGTERM)
            return
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            if message["kind"] == "check":
                self.check(message)
            elif message["kind"] == "start":
                self.start(message)
            elif message["kind"] == "end":
                self.end(message["signal"])

    def hand_on(self, process, pipe):
        """What it printed, line by line."""
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        stream, rest = process.open[pipe]
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = lines + [rest + GOES_ON], b""
        if not data and rest:
            lines, rest = lines + [rest], b""
        if lines:
            text = b"\n".join(lines).decode("utf-8", "replace")
            self.tell(kind="out", number=process.number, stream=stream, text=text)
        process.open[pipe] = (stream, rest)
        if not data:
            self.close(process, pipe)

    def close(self, process, pipe):
        self.selector.unregister(pipe)
        del process.open[pipe]

    def reap(self):
        for process in list(self.processes.values()):
            if process.started.poll() is None:
                continue
            # Its own children may hold the pipes; what is in them is its last word.
            for pipe in list(process.open):
                while pipe in process.open:
                    before = process.open[pipe][1]
                    self.hand_on(process, pipe)
                    if pipe in process.open and process.open[pipe][1] == before:
                        break
                if pipe in process.open:
                    rest = process.open[pipe][1].decode("utf-8", "replace")
                    if rest:
                        self.tell(kind="out", number=process.number,
                                  stream=process.open[pipe][0], text=rest)
                    self.close(process, pipe)
            process.signal(signal.SIGKILL)  # what it has left
            process.started.stdout.close()
            process.started.stderr.close()
            del self.processes[process.number]
            self.tell(kind="exit", number=process.number, code=process.started.returncode)

    def run(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        woken, waker = os.pipe()
        for end in (woken, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.end(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(0, selectors.EVENT_READ, self.hear)
        self.selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 4096))
        self.tell(kind="hello")
        while self.processes or not self.is_done:
            left = self.seconds_left()
            if left is not None and left <= 0:
                self.act_on_time()
                continue
            for key, _ in self.selector.select(left):
                if isinstance(key.data, Process):
                    if key.fd in key.data.open:
                        self.hand_on(key.data, key.fd)
                else:
                    key.data()
            self.reap()

    def clean(self):
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def main():
    agent = Agent()
    try:
        agent.run()
    finally:
        for process in agent.processes.values():
            process.signal(signal.SIGKILL)
        agent.clean()


main()
