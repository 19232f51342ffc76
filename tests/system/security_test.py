"""Who may listen where, and who may join."""

import os
import re
import secrets
import socket
import subprocess
import threading
import time
import unittest

from harness import SHORT, free_ports
from placed import PlacedTest
from proxies import FlippingProxy


def outside_address():
    """An IPv4 address of this machine that is not loopback, or None."""
    try:
        text = subprocess.run(["ip", "-4", "addr"], capture_output=True,
                              text=True, check=True).stdout
    except OSError:
        return None
    found = [address for address in re.findall(r"inet ([\d.]+)/", text)
             if not address.startswith("127.")]
    return found[0] if found else None


def listening_ports(pid):
    """TCP ports of 127.0.0.1 that a process listens on."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{name}")
            inodes.update(re.findall(r"^socket:\[(\d+)\]$", link))
        with open(f"/proc/{pid}/net/tcp") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except OSError:
        return set()
    return {int(row[1].split(":")[1], 16) for row in rows
            if row[3] == "0A" and row[9] in inodes}


class IdleStrangers:
    """Connect to each port as soon as it is there, and say nothing."""

    MOST = 150  # at each port

    def __init__(self, runs):
        self.runs = list(runs)
        self.sockets = []
        self.ports = set()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.crowd)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        for each in self.sockets:
            each.close()

    def crowd(self):
        while not self.is_over.is_set():
            for run in self.runs:
                for port in listening_ports(run.pid) - self.ports:
                    self.ports.add(port)
                    self.knock(port)
            time.sleep(0.002)

    def knock(self, port):
        for _ in range(self.MOST):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
            self.sockets.append(stranger)


class Security(PlacedTest):
    def write_secret(self, name, mode=0o600):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(secrets.token_bytes(32))
        os.chmod(path, mode)
        return path

    def test_a_foreign_address_needs_a_secret(self):
        address = outside_address()
        if address is None:
            self.skipTest("only loopback addresses here")
        run = self.run_to_end([*SHORT, "--bind", address], code=30, seconds=30)
        self.assertIn("--secret-file", run.stderr())
        self.assertIn(address, run.stderr())

    def test_a_secret_that_others_can_read_is_refused(self):
        path = self.write_secret("secret", mode=0o644)
        run = self.run_to_end([*SHORT, "--secret-file", path], code=30,
                              seconds=30)
        self.assertIn("chmod 600", run.stderr())
        self.assertIn(path, run.stderr())

    def test_members_with_the_secret_train(self):
        path = self.write_secret("secret")
        runs = self.start_dmlc([*SHORT, "--secret-file", path])
        self.wait_all(runs.values())

    def test_a_bit_that_flips_in_a_handshake_is_a_new_try(self):
        path = self.write_secret("secret")
        port = free_ports(4)
        # Behind four bytes of length: magic, rank, nonce, check; nonce, MAC.
        flips = [("client", 4), ("client", 13), ("client", 30),
                 ("server", 20), ("server", 60)]
        proxy = FlippingProxy(port, flips)
        ports = {name: port for name in ("scheduler", "server 0", "worker 0")}
        ports["worker 1"] = proxy.port
        runs = self.start_dmlc(
            [*self.gradients(), "--secret-file", path],
            env={name: {"DMLC_PS_ROOT_PORT": str(each)}
                 for name, each in ports.items()})
        self.wait_all(runs.values())
        self.assertEqual(proxy.flips, [])
        proxy.listener.close()

    def test_sealed_runs_have_the_same_bits(self):
        path = self.write_secret("secret")
        hashes = []
        for transport in ("tcp", "ucx"):
            for encryption in ("off", "auth", "on"):
                out = f"out-{transport}-{encryption}"
                run = self.run_to_end([
                    *SHORT, "--workers", "2", "--secret-file", path, "--transport", transport,
                    "--tls", "tcp", "--encryption", encryption, "--out", out])
                hashes.append(self.hashes(out))
                told = f"encryption {encryption}: 1 sealed"
                self.assertEqual(told in run.output(), encryption != "off", run.output())
        self.assertEqual(hashes, hashes[:1] * len(hashes))

    def test_encryption_needs_a_secret(self):
        run = self.run_to_end([*SHORT, "--encryption", "on"], code=2, seconds=30)
        self.assertIn("--encryption: encryption on: its keys come from the job's secret",
                      run.stderr())

    def test_records_that_are_altered_on_their_way_end_the_job(self):
        path = self.write_secret("secret")
        for encryption, who in (("auth", "client"), ("on", "client"), ("on", "server")):
            port = free_ports(4)
            proxy = FlippingProxy(port, [(who, 3000)])
            ports = {name: port for name in ("scheduler", "server 0", "worker 0")}
            ports["worker 1"] = proxy.port
            runs = self.start_dmlc(
                [*self.gradients(), "--secret-file", path, "--encryption", encryption],
                env={name: {"DMLC_PS_ROOT_PORT": str(each)} for name, each in ports.items()})
            line = self.ended(runs["worker 1"], 43)
            self.assertIn("altered", line)
            if who == "client":
                for name in ("worker 0", "server 0"):
                    self.assertRegex(self.ended(runs[name], 43), "worker/1@.*altered")
            for run in runs.values():
                self.wait(run, 40)
            proxy.listener.close()

    def ended(self, run, code):
        """What it says of its end."""
        self.assertEqual(self.wait(run, 40), code, run.output())
        return run.fatal_lines()[0]["message"]

    def test_idle_strangers_at_every_port_keep_nobody_out(self):
        path = self.write_secret("secret")
        for flags in (["--transport", "tcp", "--secret-file", path],
                      ["--transport", "tcp"]):
            runs = self.start_dmlc([*self.gradients(), *flags])
            with IdleStrangers(runs.values()) as strangers:
                self.wait_all(runs.values())
            self.assertGreaterEqual(len(strangers.ports), 2)

    def test_a_member_with_another_secret_is_refused_alone(self):
        right = self.write_secret("right")
        wrong = self.write_secret("wrong")
        runs = self.start_dmlc(
            [*self.gradients(), "--join-timeout", "12"],
            extra={name: ["--secret-file", right]
                   for name in ("scheduler", "server 0", "worker 0")}
            | {"worker 1": ["--secret-file", wrong]})
        refused = runs.pop("worker 1")
        self.assertEqual(self.wait(refused, 30), 30, refused.output())
        self.assertEqual(refused.fatal_lines()[0]["reason"], "authentication")
        # For the others it has never come; all say who was refused.
        self.wait_all(runs.values(), code=25, seconds=40)
        told = ("refused 127.0.0.1: handshake: worker/1 does not hold this "
                "job's secret")
        for run in runs.values():
            self.assertIn(told, run.fatal_lines()[0]["message"])
        said = runs["scheduler"].stderr()
        self.assertIn(f"] {told}\n", said)
        self.assertIn("2 of 3 members are there; waiting", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
