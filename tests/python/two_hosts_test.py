#!/usr/bin/env python3
"""telegrad.torch on two emulated hosts without a default route: no bind= is needed."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import workers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "testing"))
import two_hosts  # noqa: E402

LOCAL = "127.0.0.1 localhost\n"
HEAD = "127.0.0.1 localhost\n127.0.1.1 na\n10.77.0.2 nb\n"  # Debian's own name
STEP = """
import os, subprocess, sys, torch, torch.distributed as dist, telegrad.torch
def listeners():
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return {line.split()[3] for line in said.splitlines() if f"pid={os.getpid()}," in line}
dist.init_process_group("gloo", init_method=os.environ["INIT"],
                        rank=int(os.environ["RANK"]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(30, 100))
before = listeners()  # torch's own
telegrad.torch.compress(model, "2bit", join_timeout=30, verbose=False, metrics_port=29504)
model(torch.randn(4, 30)).sum().backward()
print("listens at", *listeners() - before, file=sys.stderr)
"""


class TwoHosts(unittest.TestCase):
    def step(self, hosts, env, of_first={}, code=0, **more):
        """What both say; `of_first`: further variables of rank 0."""
        both = two_hosts.TwoHosts(hosts, **more)
        self.addCleanup(both.close)
        runs = [subprocess.Popen(
            both.on(rank, [sys.executable, "-c", STEP]), stderr=subprocess.PIPE,
            env={**os.environ, "INIT": "env://", "RANK": str(rank), "WORLD_SIZE": "2",
                 "MASTER_PORT": "29503", "GLOO_SOCKET_IFNAME": f"v{rank}", **env,
                 **({} if rank else of_first)})
            for rank in range(2)]
        errors = []
        for run in runs:
            error = run.communicate(timeout=100)[1].decode()
            self.assertEqual(run.returncode, code, error)
            errors.append(error)
        return errors

    def test_of_one_host_name(self):
        self.step((LOCAL, LOCAL), {"MASTER_ADDR": "10.77.0.1"}, names=("na", "na"))

    def test_the_heads_own_name_is_loopback(self):
        self.step((HEAD, LOCAL + "10.77.0.1 na\n"), {"MASTER_ADDR": "na"})

    def test_met_by_an_address_of_init_method(self):
        said = self.step((HEAD, LOCAL), {"INIT": "tcp://10.77.0.1:29503"})
        self.assertEqual("".join(said).count("which authenticates nobody"), 1, said)

    def test_a_secret_of_a_file(self):
        with tempfile.NamedTemporaryFile() as secret:
            secret.write(os.urandom(32))
            secret.flush()
            said = self.step((LOCAL, LOCAL), {
                "MASTER_ADDR": "10.77.0.1", "TELEGRAD_SECRET_FILE": secret.name,
                "TELEGRAD_ENCRYPTION": "on"})
        self.assertNotIn("authenticates nobody", "".join(said))
        for rank, text in enumerate(said):  # its scheduler, server and metrics
            found = re.search("^listens at (.*)$", text, re.M).group(1).split()
            self.assertIn(f"10.77.0.{rank + 1}:29504", found)
            self.assertEqual({each.rpartition(":")[0] for each in found},
                             {f"10.77.0.{rank + 1}"}, found)
            self.assertGreaterEqual(len(found), 3 - rank)

    def test_a_secret_of_one_host_alone_is_refused(self):
        with tempfile.NamedTemporaryFile() as secret:
            secret.write(os.urandom(32))
            secret.flush()
            said = self.step((LOCAL, LOCAL), {"MASTER_ADDR": "10.77.0.1"}, code=31,
                             of_first={"TELEGRAD_SECRET_FILE": secret.name})
        for each in said:
            self.assertIn("secret: rank 0 has a file, rank 1 has no file", each)

    def test_ipv6_alone(self):
        self.step((LOCAL, LOCAL), {"MASTER_ADDR": "fd77::1"}, v4=False)


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError as why:
        workers.skip(f"python3-torch is not installed: {why}")
    if two_hosts.why_not():
        workers.skip(two_hosts.why_not())
    unittest.main()
