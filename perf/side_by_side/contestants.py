"""Who takes part, and how each is started on the hosts of a lab.

A contestant's `start` returns [(host, environment, words)], of which the last
prints one JSON line, in which `seconds_of` finds the times of an iteration.
"""
import copy
import json
import os
import shutil
import subprocess
import sys

from microbenchmarks import (pingpong_environment, pingpong_words,
                             tcp_provider, ucx_words)
from start import program_of

HERE = os.path.dirname(os.path.abspath(__file__))
# Without progress: an iteration on a slow link takes minutes.
TIMEOUT_S = 240
TORCH_PYTHON = "/usr/bin/python3"  # also that of mpi4py


class Contestant:
    """Sums the profile's gradients on all workers."""

    warmup = 1
    senders = None  # hosts whose bytes take their turn on a link; None: all
    needs = None  # the flag that says where it is, without which it stays out

    def payloads(self, run):
        """How often the gradients' bytes go in one start."""
        return run.iterations + self.warmup

    def sent_bytes(self, line, sent, run):
        """Of an iteration: what its line says, else a share of all that was sent."""
        return json.loads(line).get("sent_bytes", sent / self.payloads(run))

    def seconds_of(self, line, run):
        """The times in its line: its own, or telegrad-perf's."""
        row = json.loads(line)
        if "seconds" in row:
            return row["seconds"]
        return [1e-6 * time for time in row["times_us"]]


class Torch(Contestant):
    """PyTorch over gloo. With Telegrad's hook, and as Horovod by telegrad.horovod, by the
    package of this tree."""

    def __init__(self, kind):
        self.kind = kind
        # Two are dense; auto measures, and tries what it then takes or not.
        self.warmup = {"powersgd": 3, "telegrad:auto": 24}.get(kind, 1)
        self.name = {"gloo": "gloo allreduce", "ddp": "DDP",
                     "ddp_alone": "DDP, nothing sent",
                     "ddp_fp16": "DDP, fp16 hook",
                     "powersgd": "DDP, PowerSGD rank 1",
                     "telegrad:none": "DDP, Telegrad's hook, none",
                     "telegrad:2bit": "DDP, Telegrad's hook, 2bit",
                     "telegrad:2bit:reencode": "DDP, Telegrad's hook, 2bit, reencode",
                     "telegrad:auto": "DDP, Telegrad's hook, auto",
                     "horovod:none": "telegrad.horovod, none",
                     **{f"horovod:{codec}:{reply}": f"telegrad.horovod, {codec}, {reply}"
                        for codec in ("int2", "int2shared", "2bit")
                        for reply in ("sum", "reencode")}}[kind]

    def start(self, lab, setup, run):
        words = [TORCH_PYTHON, os.path.join(HERE, "torch_rank.py"), self.kind,
                 run.sizes, str(self.warmup),
                 str(run.iterations)]
        return [(host, {"MASTER_ADDR": lab.address(0),
                        "MASTER_PORT": str(run.port), "RANK": str(rank),
                        "WORLD_SIZE": str(setup.workers),
                        "LOCAL_WORLD_SIZE": str(setup.per_host),
                        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
                        "TELEGRAD_BIND": lab.address(host),
                        **({"TELEGRAD_SECRET_FILE": run.secret_file()}
                           if self.kind.startswith("horovod") else {}),
                        "TELEGRAD_LIBRARY": run.telegrad_library,
                        "PYTHONPATH": os.path.join(HERE, "..", "..", "python")},
                 words) for rank, host in reversed(list(enumerate(setup.worker_hosts)))]


def dmlc_roles(lab, setup, run, words):
    """Scheduler, servers and workers, who find each other as ps-lite does."""
    common = {"DMLC_PS_ROOT_URI": lab.address(0),
              "DMLC_PS_ROOT_PORT": str(run.port),
              "DMLC_NUM_WORKER": str(setup.workers),
              "DMLC_NUM_SERVER": str(setup.servers),
              "DMLC_INTERFACE": "eth0", "DMLC_GROUP_SIZE": "1",
              "OMP_NUM_THREADS": "1"}
    roles = [(0, "scheduler")]
    roles += [(host, "server") for host in setup.server_hosts()]
    roles += [(host, "worker") for host in reversed(setup.worker_hosts)]
    return [(host, {**common, "DMLC_ROLE": role,
                    "DMLC_NODE_HOST": lab.address(host)}, words)
            for host, role in roles]


class Mxnet(Contestant):
    needs = "mxnet_python"

    def __init__(self, kind):
        self.kind = kind
        self.name = "MXNet dist_sync" + (", 2-bit" if kind == "2bit" else "")

    def start(self, lab, setup, run):
        words = [run.mxnet_python, os.path.join(HERE, "mxnet_rank.py"),
                 self.kind, run.sizes, str(self.warmup), str(run.iterations)]
        return dmlc_roles(lab, setup, run, words)


class PsLite(Contestant):
    """BytePS's ps-lite over ZeroMQ: its own benchmark, for keys of one size."""

    name = "ps-lite"
    needs = "ps_lite_benchmark"

    def start(self, lab, setup, run):
        words = [sys.executable, os.path.join(HERE, "ps_lite_rank.py"),
                 run.ps_lite_benchmark, run.sizes, str(self.warmup),
                 str(run.iterations)]
        return dmlc_roles(lab, setup, run, words)


class OpenMpi(Contestant):
    """One sum of all gradients by OpenMPI's own TCP (ob1), through mpi4py."""

    name = "OpenMPI allreduce"

    @staticmethod
    def missing():
        """The packages that are not there."""
        has_mpi4py = subprocess.run(
            [TORCH_PYTHON, "-c", "import mpi4py"], check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = {"openmpi-bin (mpirun)": shutil.which("mpirun"),
                 f"python3-mpi4py (of {TORCH_PYTHON})":
                     has_mpi4py.returncode == 0}
        return [package for package, is_there in found.items() if not is_there]

    def start(self, lab, setup, run):
        missing = self.missing()
        if missing:
            raise RuntimeError(f"{self.name}: not installed: "
                               + ", ".join(missing))
        # Ranks reach mpirun by PMIx, which by default listens on loopback only:
        # here on the link of host 0, in whose namespace mpirun runs.
        pmix = {"PMIX_MCA_ptl_base_if_include": "eth0",
                "PMIX_MCA_ptl_base_remote_connections": "1"}
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe",
                 "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl",
                 "tcp,self", "--mca", "btl_tcp_if_include", "eth0"]
        rank = [TORCH_PYTHON, os.path.join(HERE, "mpi_rank.py"), run.sizes,
                str(self.warmup), str(run.iterations)]
        for host in sorted(set(setup.worker_hosts)):
            words += [":"] * (host > 0) + ["-np", str(setup.per_host)]
            on_host = run.bound(host, rank)
            words += lab.command(host, on_host) if host else on_host
        return [(0, {**pmix, "OMP_NUM_THREADS": "1"}, words)]


class Telegrad(Contestant):
    """telegrad-perf pushpull, or allreduce without a codec."""

    program = None  # telegrad-perf of another build than the run's

    def __init__(self, name, *flags, warmup=1, encryption=None):
        self.name = f"Telegrad {name}" + (f", {encryption}" if encryption else "")
        self.flags = flags
        self.warmup = warmup
        self.encryption = encryption  # of --encryption, with a secret

    def access(self, run):
        """The flags by which members on several hosts trust each other."""
        if self.encryption is None:
            return ["--insecure"]
        return ["--secret-file", run.secret_file(), "--encryption", self.encryption]

    def of_build(self, build):
        """The same by the programs of another build."""
        twin = copy.copy(self)
        twin.name = f"{self.name}, before"
        twin.program = program_of(build)
        return twin

    def start(self, lab, setup, run):
        is_push_pull = self.flags[0] == "pushpull"
        program = self.program or run.telegrad_perf
        words = [program, *self.flags, "--profile", run.profile,
                 "--transport", "tcp", *self.access(run), "--rendezvous",
                 f"{lab.address(0)}:{run.port}", "--warmup",
                 str(self.warmup), "--iterations", str(run.iterations),
                 "--timeout", str(TIMEOUT_S), "--connections",
                 str(run.connections), "--json", "--times"]
        if len(lab.rails) > 1:
            words += ["--rails",
                      ",".join(f"eth{rail}" for rail in lab.rails[1:])]
        hosts = list(setup.worker_hosts)
        if "--kv-store" in self.flags:  # allreduce, without servers
            words += ["--workers", str(setup.workers)]
        elif is_push_pull:
            hosts += setup.server_hosts()
            words += ["--workers", str(setup.workers), "--servers",
                      str(setup.servers)]
        else:
            words += ["--ranks", str(setup.workers)]
        return [(host, {},
                 [*words, "--rank", str(rank), "--bind", lab.address(host)])
                for rank, host in reversed(list(enumerate(hosts)))]


class OneWay(Contestant):
    """The gradients' bytes from host 1 to host 0, as messages of 1 MiB with a
    window of them on their way; or of 8 MiB, one there and then one back,
    before each of which the shaper has its burst anew."""

    window = 64
    senders = 1

    def __init__(self, name, transport=None, is_pingpong=False):
        way = "there and back" if is_pingpong else "one way"
        self.name = f"{way}: {'Telegrad ' + transport if transport else name}"
        self.program = name
        self.transport = transport
        self.is_pingpong = is_pingpong
        self.size = 2**23 if is_pingpong else 2**20

    def messages(self, run):
        return run.iterations * max(1, -(-run.num_bytes // self.size))

    def iterations(self, run):
        """Of telegrad-perf: windows, or messages there and back."""
        return -(-self.messages(run) // (2 if self.is_pingpong else
                                         self.window))

    def payloads(self, run):
        sent = self.messages(run)
        if self.transport:
            sent = ((self.iterations(run) + self.warmup)
                    * (2 if self.is_pingpong else self.window))
        return sent * self.size / run.num_bytes

    def seconds_of(self, line, run):
        row = json.loads(line)
        if not self.transport:
            return [run.num_bytes / row["bytes_per_s"]]
        each = 1 if self.is_pingpong else self.window
        return [1e-6 * row[key] / each * run.num_bytes / self.size
                for key in ("min_us", "p50_us", "max_us")]

    def start(self, lab, setup, run):
        if self.transport:
            return self._start_ours(lab, run)
        if self.program == "ucx_perftest":
            server = ucx_words(run.port)
            environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        else:
            server = pingpong_words(run.port, tcp_provider(), self.size,
                                    -(-self.messages(run) // 2))
            environment = pingpong_environment("eth0")
        client = [TORCH_PYTHON, os.path.join(HERE, "microbenchmarks.py"),
                  self.program, str(run.port), lab.address(0), str(self.size),
                  str(self.messages(run)), str(self.window)]
        return [(0, environment, server), (1, environment, client)]

    def _start_ours(self, lab, run):
        what = "latency" if self.is_pingpong else "bandwidth"
        words = [run.telegrad_perf, what, "--transport", self.transport,
                 "--tls", "tcp", "--size", str(self.size), "--iterations",
                 str(self.iterations(run)), "--warmup", str(self.warmup),
                 "--insecure", "--rendezvous",
                 f"{lab.address(0)}:{run.port}", "--timeout",
                 str(TIMEOUT_S), "--json"]
        if not self.is_pingpong:
            words += ["--window", str(self.window)]
        return [(host, {}, [*words, "--rank", str(host), "--bind",
                            lab.address(host)]) for host in (1, 0)]


ALL = [
    Torch("gloo"), Torch("ddp"), Torch("ddp_alone"), Torch("ddp_fp16"),
    Torch("powersgd"), Torch("telegrad:none"), Torch("telegrad:2bit"),
    Torch("telegrad:2bit:reencode"), Torch("telegrad:auto"), Torch("horovod:none"),
    Torch("horovod:int2shared:sum"), Torch("horovod:int2:reencode"), Torch("horovod:2bit:sum"),
    Torch("horovod:2bit:reencode"), OpenMpi(), Mxnet("none"), Mxnet("2bit"), PsLite(),
    Telegrad("allreduce", "allreduce"),
    Telegrad("push/pull", "pushpull"),
    Telegrad("2bit, sum", "pushpull", "--gc-type", "2bit", "--gc-reply",
             "sum"),
    Telegrad("2bit, sum, radix", "pushpull", "--gc-type", "2bit",
             "--gc-reply", "sum", "--gc-packing", "radix"),
    Telegrad("2bit, reencode", "pushpull", "--gc-type", "2bit", "--gc-reply",
             "reencode"),
    Telegrad("int2, reencode", "pushpull", "--gc-type", "int2", "--gc-reply",
             "reencode"),
    *[Telegrad(f"2bit, {reply}", "pushpull", "--gc-type", "2bit", "--gc-reply", reply,
               encryption=encryption)
      for reply in ("sum", "reencode") for encryption in ("auth", "on")],
    Telegrad("without servers, 2 bits, sum", "pushpull", "--kv-store",
             "allreduce", "--gc-type", "2bit", "--gc-reply", "sum"),
    Telegrad("without servers, 2 bits, reencode", "pushpull", "--kv-store",
             "allreduce", "--gc-type", "2bit", "--gc-reply", "reencode"),
    # Of values with a root mean square of 2; the density needs some 100 steps
    # to rise to 1 %, and then is higher in some steps than in others.
    Telegrad("threshold at 1 %, reencode", "pushpull", "--gc-type", "threshold",
             "--gc-threshold", "20", "--gc-reply", "reencode", warmup=150),
    Telegrad("top 1 %, reencode", "pushpull", "--gc-type", "topk:0.01",
             "--gc-reply", "reencode"),
    OneWay("telegrad-perf", "tcp"), OneWay("telegrad-perf", "ucx"),
    OneWay("ucx_perftest"),
    OneWay("telegrad-perf", "ofi", is_pingpong=True),
    OneWay("fi_pingpong", is_pingpong=True),
]
