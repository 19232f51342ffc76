"""Starts the members of a job as a launcher would: by their environment."""

import os
import re

from harness import SystemTest, free_ports


class PlacedTest(SystemTest):
    def steps(self):
        """Steps of the checkpoints that are there."""
        folder = os.path.join(self.folder, "ck")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(int(name[5:]) for name in names
                      if re.fullmatch(r"step-\d+", name))

    def result(self, out="telegrad-out"):
        run, = self.summary(out)
        return run["weights_sha256"], run["accuracy"], run["steps"]

    def start_dmlc(self, args, workers=2, servers=1, skip=(), extra=None,
                   env=None, out="out"):
        """name -> Run; `extra`, `env`: further flags and variables by name;
        `out`: how their folders begin."""
        base = {"DMLC_PS_ROOT_URI": "127.0.0.1",
                "DMLC_PS_ROOT_PORT": str(free_ports(4)),
                "DMLC_NUM_WORKER": str(workers),
                "DMLC_NUM_SERVER": str(servers)}
        names = ["scheduler", *(f"server {i}" for i in range(servers)),
                 *(f"worker {i}" for i in range(workers))]
        runs = {}
        for name in names:
            if name in skip:
                continue
            role, _, rank = name.partition(" ")
            mine = {**base, "DMLC_ROLE": role, **(env or {}).get(name, {})}
            if rank:  # else servers are numbered as they arrive
                mine["DMLC_WORKER_ID" if role == "worker" else "DMLC_RANK"] = rank
            flags = [*args, "--out", self.out_of(name, out)]
            runs[name] = self.start([*flags, *(extra or {}).get(name, [])],
                                    env=mine)
        return runs

    def start_torchrun(self, args, world=2, elastic=False, extra=None):
        """`extra`: further flags by rank."""
        port = free_ports(4)
        runs = []
        for rank in range(world):
            env = {"RANK": str(rank), "LOCAL_RANK": str(rank),
                   "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port),
                   "TORCHELASTIC_RUN_ID": "system-test"}
            if elastic:
                env["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            runs.append(self.start(
                [*args, "--out", self.out_of(f"worker {rank}"),
                 *(extra or {}).get(rank, [])], env=env))
        return runs, port

    @staticmethod
    def out_of(name, out="out"):
        return f"{out}-" + name.replace(" ", "-")

    def wait_all(self, runs, code=0, seconds=120):
        for run in runs:
            self.assertEqual(self.wait(run, seconds), code, run.output())

    embedded = {}  # args -> hashes, of all tests: a run for each

    def embedded_hashes(self, args):
        if tuple(args) not in self.embedded:
            self.run_to_end([*args, "--out", "embedded"])
            self.embedded[tuple(args)] = self.hashes("embedded")
        return self.embedded[tuple(args)]

    def hashes(self, out):
        return [(one["setting"], one["workers"], one["weights_sha256"])
                for one in self.summary(out)]
