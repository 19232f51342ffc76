"""Who takes part, and how each is started on the hosts of a lab.

A contestant's `start` returns [(host, environment, words)], of which the last
prints one JSON line with "seconds", or telegrad-perf's line.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Without progress: an iteration on a slow link takes minutes.
TIMEOUT_S = 240
TORCH_PYTHON = "/usr/bin/python3"  # also that of mpi4py


class Torch:
    def __init__(self, kind):
        self.kind = kind
        self.warmup = 3 if kind == "powersgd" else 1  # it starts with two dense
        self.name = {"gloo": "gloo allreduce", "ddp": "DDP",
                     "ddp_fp16": "DDP, fp16 hook",
                     "powersgd": "DDP, PowerSGD rank 1"}[kind]

    def start(self, lab, setup, run):
        words = [TORCH_PYTHON, os.path.join(HERE, "torch_rank.py"), self.kind,
                 run.sizes, str(self.warmup),
                 str(run.iterations)]
        return [(host, {"MASTER_ADDR": lab.address(0),
                        "MASTER_PORT": str(run.port), "RANK": str(host),
                        "WORLD_SIZE": str(setup.workers),
                        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
                 words) for host in reversed(range(setup.workers))]


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
    roles += [(host, "worker") for host in reversed(range(setup.workers))]
    return [(host, {**common, "DMLC_ROLE": role,
                    "DMLC_NODE_HOST": lab.address(host)}, words)
            for host, role in roles]


class Mxnet:
    warmup = 1
    needs = "mxnet_python"

    def __init__(self, kind):
        self.kind = kind
        self.name = "MXNet dist_sync" + (", 2-bit" if kind == "2bit" else "")

    def start(self, lab, setup, run):
        words = [run.mxnet_python, os.path.join(HERE, "mxnet_rank.py"),
                 self.kind, run.sizes, str(self.warmup), str(run.iterations)]
        return dmlc_roles(lab, setup, run, words)


class PsLite:
    """BytePS's ps-lite over ZeroMQ: its own benchmark, for keys of one size."""

    name = "ps-lite"
    warmup = 1
    needs = "ps_lite_benchmark"

    def start(self, lab, setup, run):
        words = [sys.executable, os.path.join(HERE, "ps_lite_rank.py"),
                 run.ps_lite_benchmark, run.sizes, str(self.warmup),
                 str(run.iterations)]
        return dmlc_roles(lab, setup, run, words)


class OpenMpi:
    """One sum of all gradients by OpenMPI's own TCP (ob1), through mpi4py."""

    name = "OpenMPI allreduce"
    warmup = 1

    def start(self, lab, setup, run):
        # Ranks reach mpirun by PMIx, which by default listens on loopback only:
        # here on the link of host 0, in whose namespace mpirun runs.
        pmix = {"PMIX_MCA_ptl_base_if_include": "eth0",
                "PMIX_MCA_ptl_base_remote_connections": "1"}
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe",
                 "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl",
                 "tcp,self", "--mca", "btl_tcp_if_include", "eth0"]
        rank = [TORCH_PYTHON, os.path.join(HERE, "mpi_rank.py"), run.sizes,
                str(self.warmup), str(run.iterations)]
        for host in range(setup.workers):
            words += [":"] * (host > 0) + ["-np", "1"]
            on_host = run.bound(host, rank)
            words += lab.command(host, on_host) if host else on_host
        return [(0, {**pmix, "OMP_NUM_THREADS": "1"}, words)]


class Telegrad:
    """telegrad-perf pushpull, or allreduce without a codec."""

    def __init__(self, name, *flags, warmup=1):
        self.name = f"Telegrad {name}"
        self.flags = flags
        self.warmup = warmup

    def start(self, lab, setup, run):
        is_push_pull = self.flags[0] == "pushpull"
        words = [run.telegrad_perf, *self.flags, "--profile", run.profile,
                 "--transport", "tcp", "--rendezvous",
                 f"{lab.address(0)}:{run.port}", "--warmup",
                 str(self.warmup), "--iterations", str(run.iterations),
                 "--timeout", str(TIMEOUT_S), "--connections",
                 str(run.connections), "--json"]
        if len(lab.rails) > 1:
            words += ["--rails",
                      ",".join(f"eth{rail}" for rail in lab.rails[1:])]
        hosts = list(range(setup.workers))
        if is_push_pull:
            hosts += setup.server_hosts()
            words += ["--workers", str(setup.workers), "--servers",
                      str(setup.servers)]
        else:
            words += ["--ranks", str(setup.workers)]
        return [(host, {},
                 [*words, "--rank", str(rank), "--bind", lab.address(host)])
                for rank, host in reversed(list(enumerate(hosts)))]


def seconds_of(line):
    """The times in a contestant's line."""
    row = json.loads(line)
    if "seconds" in row:
        return row["seconds"]
    return [1e-6 * row[key] for key in ("min_us", "p50_us", "max_us")]


ALL = [
    Torch("gloo"), Torch("ddp"), Torch("ddp_fp16"), Torch("powersgd"),
    OpenMpi(), Mxnet("none"), Mxnet("2bit"), PsLite(),
    Telegrad("allreduce", "allreduce"),
    Telegrad("push/pull", "pushpull"),
    Telegrad("2bit, sum", "pushpull", "--gc-type", "2bit", "--gc-reply",
             "sum"),
    Telegrad("2bit, sum, radix", "pushpull", "--gc-type", "2bit",
             "--gc-reply", "sum", "--gc-packing", "radix"),
    Telegrad("2bit, reencode", "pushpull", "--gc-type", "2bit", "--gc-reply",
             "reencode"),
    # Of values with a root mean square of 4.9; the density needs some 100 steps
    # to rise to 1 %, and then is higher in some steps than in others.
    Telegrad("threshold at 1 %, reencode", "pushpull", "--gc-type", "threshold",
             "--gc-threshold", "49", "--gc-reply", "reencode", warmup=150),
    Telegrad("top 1 %, reencode", "pushpull", "--gc-type", "topk:0.01",
             "--gc-reply", "reencode"),
]
