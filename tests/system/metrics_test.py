"""What Prometheus reads of a job: while it runs, stands still and fails."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest
import urllib.request

import prometheus_text
from harness import ENDLESS, SHORT, SystemTest, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCH = os.path.join(ROOT, "python", "telegrad-launch")
# Those that this job has no reason to show.
ELSEWHERE = {"telegrad_late_pushes_total", "telegrad_staleness_max_steps",
             "telegrad_stragglers_total"}


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return prometheus_text.parse(answer.read().decode("ascii"))


def names_of_page():
    with open(os.path.join(ROOT, "docs", "numbers.md"), encoding="utf-8") as file:
        section = file.read().split("\n## Metrics\n")[1].split("\n## ")[0]
    return {"telegrad_" + name for name in re.findall(r"^\| `(\w+)` \|", section, re.M)}


class MetricsTest(SystemTest):
    def addresses(self, run, count):
        """By who listens there: "worker/0"."""
        def found():
            return dict(re.findall(r" (\S+)\] metrics at http://(\S+)/metrics",
                                   run.stderr()))
        wait_until(lambda: len(found()) >= count or run.process.poll() is not None, 60)
        self.assertEqual(len(found()), count, run.output())
        return found()

    def start_job(self, *flags):
        run = self.start([*ENDLESS, "--workers", "2", "--servers", "1",
                          "--gc-type", "2bit", *flags])
        self.wait_for_training(run)
        return run

    def stop(self, run):
        run.process.send_signal(signal.SIGINT)
        self.wait(run, 30)


class Running(MetricsTest):
    def setUp(self):
        super().setUp()
        self.run_ = self.start_job("--metrics-port", "0")
        self.found = self.addresses(self.run_, 4)

    def tearDown(self):
        if self.run_.process.poll() is None:
            self.stop(self.run_)
        super().tearDown()

    def wait_for_samples(self):
        # The guard looks at a gradient each 16 steps.
        self.assertTrue(wait_until(lambda: all(prometheus_text.value(
            scrape(self.found[who]), "telegrad_residual_ratio") is not None
            for who in ("worker/0", "worker/1")), 60))

    def test_names_are_those_of_the_page(self):
        self.wait_for_samples()
        pages = {who: scrape(address) for who, address in self.found.items()}
        names = {name for page in pages.values() for name in page}
        self.assertEqual(names, names_of_page() - ELSEWHERE)
        with open(os.path.join(ROOT, "kvstore", "job", "control", "metric_names.h"),
                  encoding="utf-8") as file:
            in_source = set(re.findall(r'"(telegrad_\w+)"', file.read()))
        self.assertEqual(in_source | {"telegrad_series_left_out"}, names_of_page())
        self.check_labels(pages)
        self.check_values(pages)
        self.check_what_uses_them(names)
        self.check_table()
        self.check_that_others_end_alone()

    def check_labels(self, pages):
        allowed = {"node", "role", "rank", "codec", "collective", "message_size",
                   "algo_proto", "tensor", "what", "worker", "kind", "job_id", "version",
                   "digest", "transport", "reason", "le"}
        for who, page in pages.items():
            self.assertTrue(self.found[who].startswith("127.0.0.1:"), self.found)
            series = [dict(labels) for _, samples in page.values()
                      for _, labels in samples]
            self.assertLess(len(series), 500)
            self.assertLessEqual({name for each in series for name in each}, allowed)

    def check_values(self, pages):
        value = prometheus_text.value
        worker, server = pages["worker/1"], pages["server/0"]
        raw = value(worker, "telegrad_push_raw_bytes_total", rank="1", codec="2bit")
        wire = value(worker, "telegrad_push_wire_bytes_total", rank="1", codec="2bit")
        self.assertGreater(raw / wire, 10)
        self.assertGreater(value(worker, "telegrad_steps_total", role="worker"), 1)
        self.assertEqual(value(worker, "telegrad_peers", kind="worker"), 2)
        self.assertEqual(value(pages["scheduler"], "telegrad_peers", kind="server"), 1)
        self.assertEqual(value(pages["scheduler"], "telegrad_peers", kind="silent"), 0)
        self.assertGreater(value(server, "telegrad_push_wire_bytes_total", codec="2bit"), wire / 2)
        self.assertIsNotNone(value(server, "telegrad_waited_for_seconds_total", worker="0"))
        self.assertGreater(value(worker, "telegrad_rounds_total", collective="PushPull"), 1)
        self.assertGreater(value(worker, "telegrad_memory_bytes", kind="now"), 1e6)

    def check_what_uses_them(self, names):
        folder = os.path.join(ROOT, "deploy", "metrics")
        with open(os.path.join(folder, "dashboard.json"), encoding="utf-8") as file:
            text = file.read()
        json.loads(text)
        with open(os.path.join(folder, "alerts.yml"), encoding="utf-8") as file:
            text += file.read()
        used = {re.sub("_(bucket|count|sum)$", "", name)
                for name in re.findall(r"\btelegrad_\w+", text)}
        self.assertLessEqual(used, names | ELSEWHERE)
        self.assertGreater(len(used), 15)
        if shutil.which("promtool"):
            subprocess.run(["promtool", "check", "rules",
                            os.path.join(folder, "alerts.yml")], check=True)

    def check_table(self):
        shown = subprocess.run(
            [sys.executable, LAUNCH, "--status", *self.found.values()],
            stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
        rows = {line.split()[1]: line for line in shown.splitlines()}
        self.assertEqual(set(rows) - {"member"}, {"worker/0", "worker/1", "server/0",
                                                  "scheduler/0"}, shown)
        self.assertRegex(rows["worker/1"], r"worker/1 +\d+ +[\d.]+ +[\d.]+ [KM]?B/s")

    def test_it_answers_while_the_job_fails(self):
        os.kill(self.member("worker 1"), signal.SIGSTOP)
        try:
            self.assertTrue(wait_until(lambda: prometheus_text.value(
                scrape(self.found["scheduler"]), "telegrad_peers", kind="silent") == 1, 9, 0.2))
            for who in ("worker/0", "server/0"):
                self.assertIn("telegrad_steps_total" if who == "worker/0"
                              else "telegrad_round_seconds", scrape(self.found[who]))
        finally:
            os.kill(self.member("worker 1"), signal.SIGKILL)
        self.assertEqual(self.wait(self.run_, 30), 20, self.run_.output())

    def check_that_others_end_alone(self):
        host, port = self.found["worker/0"].split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(20)]
        with socket.create_connection((host, int(port))) as one:
            one.sendall(os.urandom(20000))
        self.assertIn("telegrad_frames_total", scrape(self.found["worker/0"]))
        for each in silent:
            each.close()


class Elsewhere(MetricsTest):
    def test_files_have_the_last_numbers(self):
        run = self.run_to_end([*SHORT, "--metrics-file", "job.prom"],
                              env={"SLURM_JOB_ID": "77"})
        self.assertNotIn("metrics at", run.stderr())
        for name in ("worker0", "worker1", "server0", "scheduler"):
            with open(self.path(f"job-{name}.prom"), encoding="ascii") as file:
                page = prometheus_text.parse(file.read())
            self.assertEqual(prometheus_text.value(
                page, "telegrad_build_info", slurm_job_id="77"), 1, name)
            if name.startswith("worker"):
                self.assertEqual(prometheus_text.value(page, "telegrad_steps_total"), 10)
                self.assertGreater(prometheus_text.value(
                    page, "telegrad_wait_seconds_total", role="worker"), 0)

    def test_tensorboard_has_a_folder_for_each_run(self):
        self.run_to_end([*SHORT, "--disp-batches", "5", "--compare", "none,2bit",
                         "--tensorboard", "runs"])
        for name in ("none-seed0", "2bit-seed0"):
            files = os.listdir(self.path("runs", name))
            self.assertEqual(len(files), 1, files)
            with open(self.path("runs", name, files[0]), "rb") as file:
                events = file.read()
            for tag in (b"brain.Event:2", b"train/loss", b"test/accuracy"):
                self.assertIn(tag, events)
            self.check_by_tensorboard(self.path("runs", name))

    def check_by_tensorboard(self, folder):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            return  # its bytes are compared in trainer/report
        read = event_accumulator.EventAccumulator(folder)
        read.Reload()
        self.assertEqual([each.step for each in read.Scalars("train/loss")], [5, 10])
        self.assertGreater(read.Scalars("telegrad/wire_bytes")[1].value, 1000)
        self.assertEqual([each.step for each in read.Scalars("test/accuracy")], [10])

    def test_the_port_follows_bind_with_a_secret(self):
        with open(os.open(self.path("secret"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(b"s" * 32)
        run = self.start([*ENDLESS, "--workers", "2", "--servers", "1", "--metrics-port", "0",
                          "--bind", "127.0.0.2", "--secret-file", "secret"])
        for address in self.addresses(run, 4).values():
            self.assertTrue(address.startswith("127.0.0.2:"), address)
            scrape(address)
        self.stop(run)

    def test_what_cannot_be_is_refused(self):
        for flags, text in ((["--metrics-port", "70000"], "--metrics-port"),
                            (["--metrics-file", "none/job.prom"], "none/job.prom"),
                            (["--metrics-file", ""], "--metrics-file"),
                            (["--flight-recorder", ""], "--flight-recorder"),
                            (["--flight-recorder", "/proc/none"], "/proc/none")):
            run = self.run_to_end([*SHORT, *flags], code=2)
            self.assertIn(text, run.stderr())


if __name__ == "__main__":
    unittest.main(verbosity=2)
