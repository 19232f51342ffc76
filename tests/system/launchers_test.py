"""Roles from DMLC_* and torchrun's variables give what embedded runs give."""

import os
import platform
import signal
import socket
import unittest

from harness import ENDLESS, SHORT, free_ports, wait_until
from placed import PlacedTest

TABLE = "bytes of all workers, with headers"  # above the closing table
COMPARE = [*SHORT, "--compare", "none,2bit"]


class Dmlc(PlacedTest):
    def test_comparison_equals_the_embedded_one(self):
        runs = self.start_dmlc(COMPARE, workers=2, servers=2)
        self.wait_all(runs.values())
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))
        self.assertIn(TABLE, runs["worker 0"].stdout())
        for name, run in runs.items():
            if name != "worker 0":
                self.assertFalse(os.path.exists(self.path(self.out_of(name))))
                self.assertEqual(run.stdout(), "")

    def test_allreduce_needs_no_servers(self):
        flags = [*COMPARE, "--kv-store", "allreduce"]
        runs = self.start_dmlc(flags, servers=0)
        self.wait_all(runs.values())
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))

    def test_a_store_that_the_launcher_knows_nothing_of_is_named(self):
        for kv_store, servers in (("allreduce", 1), ("dist_sync", 0)):
            runs = self.start_dmlc([*self.gradients(), "--kv-store", kv_store],
                                   servers=servers, skip=("scheduler",))
            for run in runs.values():
                self.assertEqual(self.wait(run, 20), 2, run.output())
                self.assertIn(f"--kv-store {kv_store}", run.output())

    def test_a_killed_worker_ends_all_with_20(self):
        runs = self.start_dmlc(self.endless_gradients())
        self.wait_for_training(runs["worker 0"])
        pid = self.member("worker 1")
        self.assertEqual(pid, runs["worker 1"].pid)
        os.kill(pid, signal.SIGKILL)
        runs.pop("worker 1").process.wait()
        self.wait_all(runs.values(), code=20, seconds=10)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("worker/1", lines[0]["dead"][0])

    def test_different_thresholds_give_31_and_both_values(self):
        runs = self.start_dmlc(
            [*self.gradients(), "--gc-type", "2bit"],
            extra={"worker 0": ["--gc-threshold", "0.5"],
                   "worker 1": ["--gc-threshold", "0.25"]})
        self.wait_all(runs.values(), code=31)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("0.5", lines[0]["message"])
            self.assertIn("0.25", lines[0]["message"])

    def test_different_networks_give_31_and_both_values(self):
        for name, first, second in (("tls", "tcp", "shm"),
                                    ("UCX_TLS", "tcp", "unset")):
            with self.subTest(name):
                env, flags = {}, {}
                if name == "tls":
                    flags = {"worker 0": ["--tls", first],
                             "worker 1": ["--tls", second]}
                else:
                    env = {"worker 0": {name: first}}
                runs = self.start_dmlc([*self.gradients(), "--transport", "ucx"],
                                       extra=flags, env=env)
                self.wait_all(runs.values(), code=31)
                for run in runs.values():
                    lines = run.fatal_lines()
                    self.assertEqual(len(lines), 1, run.output())
                    self.assertIn(f"{name}: worker/0 has {first}, worker/1 has "
                                  f"{second}", lines[0]["message"])

    @unittest.skipUnless(platform.machine() == "x86_64", "kernels of x86")
    def test_muon_refuses_workers_whose_products_may_differ(self):
        muon = [*SHORT, "--optimizer", "muon", "--lr", "0.001"]
        env = {"worker 0": {"OPENBLAS_CORETYPE": "Nehalem"},
               "worker 1": {"OPENBLAS_CORETYPE": "Core2"}}
        runs = self.start_dmlc(muon, env=env)
        self.wait_all(runs.values(), code=31)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertRegex(lines[0]["message"],
                             r"BLAS: worker/0 has .*Nehalem, worker/1 has .*"
                             r"Core2")
        runs = self.start_dmlc([*muon, "--local-steps", "5"], env=env)
        self.wait_all(runs.values())

    def test_a_folder_of_checkpoints_has_one_job(self):
        flags = [*ENDLESS, "--checkpoint", "ck", "--checkpoint-every", "20"]
        runs = self.start_dmlc(flags)
        self.wait_for_training(runs["worker 0"])
        self.assertTrue(wait_until(
            lambda: [each for each in os.listdir(self.path("ck"))
                     if each.startswith("step-")], 60))
        # In the folder of results, too, which worker 0 alone has.
        others = self.start_dmlc([*SHORT, "--join-timeout", "4"])
        self.assertEqual(self.wait(others["worker 0"], 20), 2)
        self.assertIn("--out out-worker-0: another telegrad-train",
                      others["worker 0"].output())
        for run in others.values():
            self.wait(run, 30)
        flags += ["--resume"]
        others = self.start_dmlc(flags, out="other")
        self.wait_all(others.values(), code=2, seconds=30)
        for run in others.values():
            self.assertIn("--checkpoint ck: another telegrad-train, process "
                          f"{runs['worker 0'].pid} on ", run.output())
        os.kill(runs["worker 0"].pid, signal.SIGKILL)
        for run in runs.values():
            run.process.wait()
        runs = self.start_dmlc(flags)
        self.wait_for_training(runs["worker 0"])
        self.assertIn("resumed from step", runs["worker 0"].stdout())
        runs["worker 1"].process.send_signal(signal.SIGTERM)
        for run in runs.values():
            self.wait(run, 20)

    def test_a_missing_worker_gives_25_and_its_name(self):
        runs = self.start_dmlc([*self.gradients(), "--join-timeout", "4"],
                               skip=["worker 1"])
        self.wait_all(runs.values(), code=25, seconds=30)
        for run in runs.values():
            lines = run.fatal_lines()
            self.assertEqual(len(lines), 1, run.output())
            self.assertIn("worker/1", lines[0]["message"])


class Cancelled(PlacedTest):
    def test_a_signal_to_any_process_ends_all_as_cancelled(self):
        for name in ("worker 1", "server 0", "scheduler"):
            with self.subTest(name):
                runs = self.start_dmlc(self.endless_gradients())
                self.wait_for_training(runs["worker 0"])
                told = runs.pop(name)
                told.process.send_signal(signal.SIGTERM)
                self.assertEqual(self.wait(told, 10), 143, told.output())
                self.wait_all(runs.values(), code=33, seconds=10)
                for run in (told, *runs.values()):
                    lines = run.fatal_lines()
                    self.assertEqual(len(lines), 1, run.output())
                    self.assertEqual(lines[0]["reason"], "cancelled", lines)
                    self.assertIn("SIGTERM", lines[0]["message"])
                    self.assertIn(str(told.pid), lines[0]["message"])

    def test_a_signal_to_all_ends_all_as_cancelled(self):
        runs = self.start_dmlc(self.endless_gradients())
        self.wait_for_training(runs["worker 0"])
        for run in runs.values():
            run.process.send_signal(signal.SIGTERM)
        # 33: of another's signal it was told before it looked at its own.
        codes = {self.wait(run, 10) for run in runs.values()}
        self.assertIn(143, codes)
        self.assertLessEqual(codes, {143, 33})
        for run in runs.values():
            self.assertEqual([line["reason"] for line in run.fatal_lines()],
                             ["cancelled"], run.output())

    def test_loopback_of_a_far_scheduler_is_a_wrong_flag_everywhere(self):
        runs = self.start_dmlc(
            self.gradients(), env={name: {"DMLC_PS_ROOT_URI": "203.0.113.77"}
                        for name in ("scheduler", "server 0", "worker 0",
                                     "worker 1")})
        self.wait_all(runs.values(), code=2, seconds=20)
        for run in runs.values():
            self.assertIn("--bind auto", run.stderr())
            self.assertIn("--secret-file", run.stderr())


class ByHand(PlacedTest):
    def start_server(self, *flags):
        return self.start(flags, program=os.environ["TELEGRAD_SERVER"])

    def test_workers_train_with_servers_that_were_started_by_hand(self):
        scheduler = f"127.0.0.1:{free_ports(4)}"
        common = ["--scheduler", scheduler, "--workers", "2", "--servers", "2"]
        runs = [self.start_server(*common, "--role", "scheduler",
                                  "--runs", "2")]
        runs += [self.start_server(*common, "--runs", "2", "--timeline", "traces")
                 for _ in range(2)]
        runs += [self.start([*COMPARE, *common, "--out", f"out-{i}"])
                 for i in range(2)]
        self.wait_all(runs)
        # Who is worker 0 of a run writes it; the scheduler gives ranks anew.
        written = []
        for i in range(2):
            if os.path.exists(self.path(f"out-{i}", "summary.json")):
                written += self.hashes(f"out-{i}")
        self.assertEqual(
            sorted(written),
            sorted(self.embedded_hashes(COMPARE)))
        self.assertEqual(
            sorted(os.listdir(self.path("traces"))),
            [f"run{run}-server{rank}.json" for run in (0, 1) for rank in (0, 1)])

    def test_a_server_of_other_runs_than_the_workers_is_named(self):
        common = ["--scheduler", f"127.0.0.1:{free_ports(2)}", "--workers", "1"]
        runs = [self.start_server(*common, "--role", "scheduler", "--runs", "2"),
                self.start_server(*common), self.start([*COMPARE, *common])]
        self.wait_all(runs, code=31)
        for words in ("--runs (settings times seeds): ", "worker/0 has 2", "server/0 has 1"):
            self.assertIn(words, runs[2].output())

    def test_dmlc_variables_make_it_a_server(self):
        runs = self.start_dmlc(self.gradients(), skip=["server 0", "scheduler"])
        env = runs["worker 0"].env
        for role in ("scheduler", "server"):
            runs[role] = self.start([], env={**env, "DMLC_ROLE": role},
                                    program=os.environ["TELEGRAD_SERVER"])
        self.wait_all(runs.values())

    def test_a_server_that_is_told_nothing_says_what_it_needs(self):
        run = self.start_server()
        self.assertEqual(self.wait(run, 10), 2, run.output())
        self.assertIn("--scheduler", run.stderr())

    def test_what_a_server_cannot_be_is_refused_at_once(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            for flags, words in (
                    (["--role", "scheduler"], [where, "free port"]),
                    (["--servers", "0"], ["--servers 0"]),
                    (["--timeline", "/proc/x"], ["--timeline /proc/x"]),
                    (["--transport", "inproc"], ["inproc", "one process"])):
                with self.subTest(" ".join(flags)):
                    run = self.start_server("--scheduler", where, *flags)
                    self.assertEqual(self.wait(run, 10), 2, run.output())
                    self.assertEqual(run.stderr().count("\n"), 1, run.stderr())
                    for word in words:
                        self.assertIn(word, run.stderr())

    def test_a_signal_ends_it_and_the_job(self):
        scheduler = f"127.0.0.1:{free_ports(4)}"
        common = ["--scheduler", scheduler, "--workers", "1"]
        server = self.start_server(*common)
        others = [self.start_server(*common, "--role", "scheduler"),
                  self.start([*self.endless_gradients(), *common])]
        self.wait_for_training(others[1])
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(server, 10), 143, server.output())
        self.wait_all(others, code=33, seconds=10)


class Torchrun(PlacedTest):
    def test_comparison_equals_the_embedded_one(self):
        runs, _ = self.start_torchrun(COMPARE)
        self.wait_all(runs)
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))

    def test_allreduce_equals_the_embedded_one(self):
        runs, _ = self.start_torchrun([*COMPARE, "--kv-store", "allreduce"])
        self.wait_all(runs)
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))

    def test_servers_of_their_own_and_beside_workers(self):
        flags = [*COMPARE, "--servers", "1", "--workers-serve"]
        runs, _ = self.start_torchrun(flags, world=3)
        self.wait_all(runs)
        self.assertEqual({one["servers"] for one in self.summary("out-worker-0")}, {3})
        self.assertEqual(self.hashes("out-worker-0"),
                         self.embedded_hashes(COMPARE))

    def test_who_starts_its_own_servers_has_none_beside_workers(self):
        run = self.start([*SHORT, "--workers-serve"])
        self.assertEqual(self.wait(run, 20), 2, run.output())
        self.assertIn("--workers-serve is for processes that a launcher", run.stderr())

    def test_the_store_of_torchrun_keeps_its_port(self):
        with socket.socket() as store:
            runs, port = self.start_torchrun(self.gradients(), elastic=True)
            store.bind(("127.0.0.1", port))
            store.listen()
            self.wait_all(runs)
        self.assertTrue(wait_until(
            lambda: os.path.exists(self.path("out-worker-0")), 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
