"""Who is measured, and how each is started on this machine.

A contestant's `measure(what, over, sizes)` returns {size: value}: half a round
trip in us ("latency"), 10^9 bytes/s ("bandwidth"), the time of a sum by two
ranks in us ("allreduce"). It raises Failed with a reason.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "side_by_side"))

from microbenchmarks import (pingpong_environment,  # noqa: E402
                             pingpong_us, pingpong_words, tcp_provider,
                             ucx_bytes_per_s, ucx_latency_us, ucx_words)

DEBIAN_PYTHON = "/usr/bin/python3"  # has the packages of Debian
WINDOW = 64  # messages on their way, as telegrad-perf's
LIMIT_S = 120  # of one start


class Failed(Exception):
    pass


def num_iterations(what, size):
    """About as many as Telegrad's run in 0.2 s, as some cannot time."""
    most, budget = (20000, 2**30) if what == "bandwidth" else (5000, 2**28)
    return max(20, min(most, budget // max(size, 1)))


def on_core(core, words):
    """The words bound to one core, where each end can have its own."""
    if (os.cpu_count() or 1) < 2:
        return words
    return ["taskset", "-c", str(core), *words]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(words, environment=None):
    try:
        done = subprocess.run(
            words, env={**os.environ, **(environment or {})}, text=True,
            capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{words[0]}: not done after {LIMIT_S} s") from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}: "
                     + (done.stderr or done.stdout)[-400:].strip())
    return done.stdout


def run_pair(server, client, environment=None):
    """What the client prints. It is started again until the server listens."""
    environment = {**os.environ, **(environment or {})}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(server, env=environment, stdout=said,
                                   stderr=said)
        try:
            deadline = time.monotonic() + 10
            while True:
                done = subprocess.run(client, env=environment, text=True,
                                      capture_output=True, check=False,
                                      timeout=LIMIT_S)
                if done.returncode == 0:
                    return done.stdout
                if time.monotonic() > deadline or process.poll() is not None:
                    said.seek(0)
                    raise Failed(f"{' '.join(client)}: "
                                 + (done.stderr + said.read())[-400:].strip())
                time.sleep(0.05)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{client[0]}: not done after {LIMIT_S} s") from error
        finally:
            process.kill()
            process.wait()


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()
            if line.startswith("{")]


class Telegrad:
    """telegrad-perf over one of its transports."""

    package = "libucx-dev libfabric-dev, and build again"

    def __init__(self, build, transport, has_checksums=False):
        self.program = os.path.join(build, "perf", "telegrad-perf")
        self.transport = transport
        self.has_checksums = has_checksums
        self.name = plain = f"Telegrad {transport}"
        self.beside = {}
        if has_checksums:
            self.name += ", checksums"
            self.beside = {"tcp": plain, "shm": plain}

    def missing(self):
        try:
            run([self.program, "latency", "--transport", self.transport,
                 "--size", "8", "--iterations", "1"])
        except Failed:
            return f"{self.transport} in the build"
        return None

    def takes(self, what, over):
        return over in {"tcp": ["tcp"], "inproc": ["shm"]}.get(
            self.transport, ["tcp", "shm"])

    def measure(self, what, over, sizes):
        words = [self.program, what, "--transport", self.transport, "--size",
                 ",".join(map(str, sizes)), "--seconds", "0.2", "--json"]
        if self.transport in ("ucx", "ofi"):
            words += ["--tls", over]
        if self.transport != "inproc":
            words += ["--pin"]
        if what == "bandwidth":
            words += ["--window", str(WINDOW)]
        if self.has_checksums:
            words += ["--resend"]
        rows = json_lines(run(words))
        key = "algbw_GBps" if what == "bandwidth" else "p50_us"
        return {row["size_bytes"]: row[key] for row in rows}


class UcxPerftest:
    """Active messages of UCP, as Telegrad's ucx transport uses them."""

    name = "ucx_perftest"
    package = "ucx-utils"
    beside = {"tcp": "Telegrad ucx", "shm": "Telegrad ucx"}

    def missing(self):
        return None if shutil.which("ucx_perftest") else "ucx_perftest"

    def takes(self, what, over):
        return what in ("latency", "bandwidth")

    def measure(self, what, over, sizes):
        tls = "tcp,self" if over == "tcp" else "posix,cma,self"
        return {size: self._one(what, tls, size) for size in sizes}

    @staticmethod
    def _one(what, tls, size):
        test = "ucp_am_lat" if what == "latency" else "ucp_am_bw"
        port = free_port()
        client = ucx_words(port, "127.0.0.1", test, size,
                           num_iterations(what, size),
                           WINDOW if what == "bandwidth" else 0)
        text = run_pair(on_core(0, ucx_words(port)), on_core(1, client),
                        {"UCX_TLS": tls, "UCX_NET_DEVICES": "lo"})
        return (ucx_latency_us(text) if what == "latency"
                else ucx_bytes_per_s(text) / 1e9)


class FiPingpong:
    """Messages of the endpoints that Telegrad's ofi has: reliable datagrams of
    the same provider. It has no window."""

    name = "fi_pingpong"
    package = "libfabric-bin"
    beside = {"tcp": "Telegrad ofi", "shm": "Telegrad ofi"}

    def missing(self):
        return None if shutil.which("fi_pingpong") else "fi_pingpong"

    def takes(self, what, over):
        return what == "latency"

    def measure(self, what, over, sizes):
        provider = tcp_provider() if over == "tcp" else "shm"
        return {size: self._one(what, provider, size) for size in sizes}

    @staticmethod
    def _one(what, provider, size):
        words = (free_port(), provider, size, num_iterations(what, size))
        return pingpong_us(
            run_pair(on_core(0, pingpong_words(*words)),
                     on_core(1, pingpong_words(*words, "127.0.0.1")),
                     pingpong_environment("lo") if provider != "shm" else {}))


class OpenMpi:
    """OpenMPI's own transports (ob1) through mpi4py."""

    name = "OpenMPI"
    package = "openmpi-bin python3-mpi4py"
    beside = {"tcp": "Telegrad tcp", "shm": "Telegrad ucx"}

    def missing(self):
        if not shutil.which("mpirun"):
            return "mpirun"
        found = subprocess.run([DEBIAN_PYTHON, "-c", "import mpi4py"],
                               capture_output=True, check=False)
        return None if found.returncode == 0 else "mpi4py"

    def takes(self, what, over):
        return True

    def measure(self, what, over, sizes):
        ways = "tcp,self" if over == "tcp" else "vader,self"
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                 "2", "--mca", "pml", "ob1", "--mca", "btl", ways, "--bind-to",
                 "core" if (os.cpu_count() or 1) > 1 else "none"]
        if over == "tcp":
            words += ["--mca", "btl_tcp_if_include", "lo"]
        words += [DEBIAN_PYTHON, os.path.join(HERE, "mpi_rank.py"), what,
                  str(WINDOW)]
        words += [f"{size}:{num_iterations(what, size)}" for size in sizes]
        rows = json_lines(run(words))
        return {row["size_bytes"]: row["value"] for row in rows}


class Gloo:
    """PyTorch's allreduce over TCP; not bound, as a rank has three threads."""

    name = "gloo"
    package = "python3-torch"
    beside = {"tcp": "Telegrad tcp", "shm": "Telegrad ucx"}

    def missing(self):
        found = subprocess.run([DEBIAN_PYTHON, "-c", "import torch"],
                               capture_output=True, check=False)
        return None if found.returncode == 0 else "torch"

    def takes(self, what, over):
        return what == "allreduce"

    def measure(self, what, over, sizes):
        return {size: self._one(what, size) for size in sizes}

    @staticmethod
    def _one(what, size):
        script = os.path.join(HERE, "..", "side_by_side", "torch_rank.py")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as sizes:
            json.dump([[size // 4]], sizes)
            sizes.flush()
            words = [DEBIAN_PYTHON, script, "gloo", sizes.name, "10",
                     str(min(1000, num_iterations(what, size)))]
            common = {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1",
                      "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2",
                      "GLOO_SOCKET_IFNAME": "lo"}
            other = subprocess.Popen(
                words, env={**os.environ, **common, "RANK": "1"},
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                rows = json_lines(run(words, {**common, "RANK": "0"}))
            finally:
                other.kill()
                other.wait()
        seconds = sorted(rows[-1]["seconds"])
        return 1e6 * seconds[(len(seconds) - 1) // 2]


def all_of(build, words):
    """Those with one of the words in their name that can run; says of the
    others of these what they need."""
    build = os.path.abspath(build)
    if not os.access(os.path.join(build, "perf", "telegrad-perf"), os.X_OK):
        sys.exit(f"no perf/telegrad-perf in {build}: build it, or give --build")
    found = []
    ours = [Telegrad(build, name) for name in ("tcp", "ucx", "ofi", "inproc")]
    checked = [Telegrad(build, name, has_checksums=True)
               for name in ("tcp", "ucx", "ofi")]
    for each in (*ours, *checked, UcxPerftest(), FiPingpong(), OpenMpi(),
                 Gloo()):
        if not any(word in each.name.lower() for word in words):
            continue
        lacks = each.missing()
        if lacks is None:
            found.append(each)
        else:
            print(f"skipped: {each.name}: no {lacks}; "
                  f"apt-get install {each.package}", file=sys.stderr)
    return found
