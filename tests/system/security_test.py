"""Who may listen where, and who may join."""

import os
import re
import secrets
import subprocess
import unittest

from harness import SHORT
from placed import PlacedTest


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

    def test_a_member_with_another_secret_is_refused_alone(self):
        right = self.write_secret("right")
        wrong = self.write_secret("wrong")
        runs = self.start_dmlc(
            [*SHORT, "--join-timeout", "12"],
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
