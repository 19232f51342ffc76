"""Starting a contestant on the hosts of a lab."""
import os
import socket
import subprocess
import sys
import tempfile
import time

from lab import Lab

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
LIMIT_S = 300  # of one contestant in one round


class Setup:
    """Who is where: workers on hosts 0.., `per_host` on each, servers beside them or
    apart."""

    def __init__(self, workers, servers, apart, per_host=1):
        self.workers, self.servers, self.apart = workers, servers, apart
        self.per_host = per_host
        self.worker_hosts = [worker // per_host for worker in range(workers)]
        self.num_hosts = self.worker_hosts[-1] + 1 + (servers if apart else 0)

    def server_hosts(self):
        first = self.worker_hosts[-1] + 1 if self.apart else 0
        return [first + i % max(1, self.num_hosts - first)
                for i in range(self.servers)]


def program_of(build):
    """telegrad-perf in the folder of a build."""
    return os.path.abspath(os.path.join(build, "perf", "telegrad-perf"))


class Run:
    """What a contestant is started with."""

    def __init__(self, build, profile, iterations, sizes=None, cores=False,
                 mxnet_python=None, connections=1, num_bytes=0,
                 ps_lite_benchmark=None):
        self.num_bytes = num_bytes  # of the gradients, as float32
        self.profile, self.sizes = profile, sizes
        self.iterations = iterations
        self.telegrad_perf = program_of(build)
        self.telegrad_library = os.path.abspath(
            os.path.join(build, "python", "libtelegrad.so"))
        self.mxnet_python = mxnet_python
        self.ps_lite_benchmark = ps_lite_benchmark
        self.cores = cores
        self.connections = connections
        self.port = 0
        self._folder = None  # of the job's secret

    def secret_file(self):
        """A file with a secret for all members, which ends with this run."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="side-by-side-")
            with open(os.open(os.path.join(self._folder.name, "secret"),
                              os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(os.urandom(32))
        return os.path.join(self._folder.name, "secret")

    def bound(self, host, words):
        """The words on the host's core, if each has one."""
        if not self.cores:
            return words
        return ["taskset", "-c", str(host % os.cpu_count()), *words]


def have_a_core(hosts):
    """Whether so many hosts can have this machine's cores, one each."""
    return hosts == os.cpu_count()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def run_once(contestant, lab, setup, run):
    """One start of a contestant: (seconds per iteration, bytes of one)."""
    line, sent = run_line(contestant, lab, setup, run)
    return contestant.seconds_of(line, run), sent


def run_line(contestant, lab, setup, run):
    """One start: (the line that it printed, bytes of all hosts in one iteration)."""
    run.port = free_port()
    before = lab.sent_bytes()
    processes = []
    with tempfile.TemporaryFile("w+") as errors:
        for host, environment, words in contestant.start(lab, setup, run):
            processes.append(subprocess.Popen(
                lab.command(host, run.bound(host, words)),
                env={**os.environ, **environment}, stdout=subprocess.PIPE,
                stderr=errors, text=True))
        try:
            out, _ = processes[-1].communicate(timeout=LIMIT_S)
            deadline = time.monotonic() + 30
            for process in processes[:-1]:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            out = ""
        finally:
            stop(processes)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not lines:
            errors.seek(0)
            raise RuntimeError(f"{contestant.name}: no result; it said: "
                               + errors.read()[-600:])
    sent = lab.sent_bytes() - before
    return lines[-1], contestant.sent_bytes(lines[-1], sent, run)


def check_lab():
    """Ends the program where there can be no lab."""
    try:
        if os.geteuid() != 0:
            raise PermissionError("this is not root")
        with Lab(1, None, ""):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        print("skipped: network namespaces need root, iproute2 and veth, "
              f"bridge and tbf of the kernel: {error}", file=sys.stderr)
        sys.exit(SKIPPED)


def profile_file(name):
    """(what telegrad-perf takes, the file)."""
    if name.endswith(".csv"):
        return os.path.abspath(name), os.path.abspath(name)
    path = os.path.join(HERE, "..", "..", "topology", "profiles", name + ".csv")
    if not os.path.exists(path):
        sys.exit(f"--profile {name}: no file {os.path.normpath(path)}")
    return name, path


def shapes_of(profile):
    """The shapes in a gradient profile: name,shape,elements."""
    with open(profile, encoding="utf-8") as file:
        lines = file.read().splitlines()[1:]
    return [[int(n) for n in line.split(",")[1].split("x")] for line in lines
            if line and not line.startswith("#")]
