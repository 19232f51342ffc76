"""Under Open MPI every rank is a member."""

import os
import signal
import unittest

from harness import ENDLESS, SHORT, need
from placed import PlacedTest

need("mpirun")
COMPARE = [*SHORT, "--compare", "none,2bit+local-steps=4+lr=0.02"]


def mpirun(ranks):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to",
            "none", "-np", str(ranks)]


class OpenMpi(PlacedTest):
    def test_comparison_equals_the_embedded_one(self):
        expected = self.embedded_hashes(COMPARE)
        for ranks, flags in ((2, []), (3, ["--servers", "1"])):
            with self.subTest(f"{ranks} ranks {flags}"):
                out = f"mpi-{ranks}"
                self.run_to_end([*COMPARE, *flags, "--out", out],
                                prefix=mpirun(ranks))
                self.assertEqual(self.hashes(out), expected)

    def test_all_settings_have_the_processes_that_are_there(self):
        run = self.run_to_end(
            [*SHORT, "--compare", "none,2bit+kv-store=allreduce"], code=2,
            prefix=mpirun(2))
        self.assertIn("'2bit+kv-store=allreduce': --kv-store allreduce has no "
                      "servers", run.output())

    def test_a_killed_rank_ends_the_others_with_20(self):
        # Without it mpirun itself ends the others, by a signal.
        run = self.start(ENDLESS, prefix=[
            *mpirun(3), "--mca", "orte_abort_on_non_zero_status", "0",
            "--enable-recovery"])
        self.wait_for_training(run)
        os.kill(self.member("worker 1"), signal.SIGKILL)
        self.wait(run, 10)
        self.assert_all_gone(1)
        lines = run.fatal_lines()
        self.assertEqual(len(lines), 2, run.output())
        for line in lines:
            self.assertEqual(line["code"], 20, line)
            self.assertIn("worker/1", " ".join(line["dead"]), line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
