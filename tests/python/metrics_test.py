#!/usr/bin/env python3
"""What jobs in this process count, as a dictionary, at a port and by OpenTelemetry; what Kubeflow
hears of them."""
import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from unittest import mock

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad
import telegrad.kubeflow
import telegrad.kvstore

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "system"))
import prometheus_text  # noqa: E402


def exchange(store, keys, values, steps):
    for _ in range(steps):
        store.push_pull(keys, values, [np.empty_like(value) for value in values])


class OneJob(unittest.TestCase):
    def start(self, num_tensors=3, **options):
        job = telegrad.Job(**options).join()
        self.addCleanup(job.close)
        store = telegrad.Store(job)
        store.set_compression(type="2bit:0.5")
        values = [np.ones(100 + i, np.float32) for i in range(num_tensors)]
        keys = store.init([f"layer{i}.weight" for i in range(num_tensors)], values)
        exchange(store, keys, values, 17)  # the guard looks each 16 steps
        return job, store

    def test_the_dictionary_and_the_port_have_the_same(self):
        job, store = self.start(metrics_port=0)
        found = telegrad.metrics()
        self.assertEqual(
            [value for labels, value in found["telegrad_push_raw_bytes_total"]
             if (labels["role"], labels["codec"]) == ("worker", "2bit")],
            [store.stats()["push_raw_bytes"]])
        self.assertEqual({labels["role"] for labels, _ in found["telegrad_job_info"]},
                         {"worker", "server", "scheduler"})
        self.assertEqual([value for _, value in found["telegrad_steps_total"]], [17])
        with urllib.request.urlopen(f"http://{job.metrics_address}/metrics") as answer:
            page = prometheus_text.parse(answer.read().decode())
        names = {name for _, samples in page.values() for name, _ in samples}
        self.assertEqual(names, set(found))
        job.close()
        self.assertEqual(telegrad.metrics(), {})

    def test_steps_and_waiting_have_seconds(self):
        begin = time.monotonic()
        job, store = self.start()

        def seconds():
            found = telegrad.metrics()
            return [value for name in ("step", "wait")
                    for _, value in found[f"telegrad_{name}_seconds_total"]]

        step_s, wait_s = seconds()
        self.assertLess(0, wait_s)
        self.assertLessEqual(wait_s, step_s)
        self.assertLessEqual(step_s, time.monotonic() - begin)
        store.note_step(100.5, 7.25)  # from then on nobody else counts
        exchange(store, [0], [np.ones(100, np.float32)], 3)
        self.assertEqual([round(after - before, 9) for after, before in
                          zip(seconds(), (step_s, wait_s))], [100.5, 7.25])
        for wrong in ((-1, 0), (0, float("nan")), (float("inf"), 0), ("a", 0)):
            workers.refused(telegrad.UsageError, lambda: store.note_step(*wrong))
        job.close()

    def test_a_kvstore_has_them_as_well(self):
        with telegrad.Job().join() as job, telegrad.kvstore.create("dist_sync", job) as kv:
            kv.init("w", np.zeros(100, np.float32))
            for _ in range(5):
                kv.push("w", np.ones(100, np.float32))
                kv.pull("w", out=np.empty(100, np.float32))
            found = telegrad.metrics()
            (_, step_s), = found["telegrad_step_seconds_total"]
            (_, wait_s), = found["telegrad_wait_seconds_total"]
            self.assertTrue(0 < wait_s <= step_s, (wait_s, step_s))

    def test_a_line_of_each_job_is_left(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(
                os.environ, TELEGRAD_LOG_JSON=os.path.join(folder, "jobs.jsonl")):
            job, store = self.start()
            stats = store.stats()
            store.close()
            job.close()
            with self.assertRaises(KeyError), telegrad.Job() as other:
                other.join()
                raise KeyError("w")
            os.environ["TELEGRAD_LOG_JSON"] = folder
            with self.assertLogs("telegrad", "WARNING") as logs, telegrad.Job() as other:
                other.join()
            self.assertIn("TELEGRAD_LOG_JSON=", logs.output[0])
            with open(os.path.join(folder, "jobs.jsonl"), encoding="utf-8") as file:
                good, bad = map(json.loads, file)
        self.assertEqual((good["event"], good["steps"], good["workers"], good["code"]),
                         ("result", 17, 1, 0))
        for name in ("push_raw_bytes", "push_wire_bytes", "pull_raw_bytes", "pull_wire_bytes"):
            self.assertEqual(good[name], stats[name])
        self.assertTrue(0 < good["comm_wait_s"] <= good["seconds"], good)
        self.assertGreater(good["worker_peak_bytes"], 1 << 20)
        self.assertEqual((bad["code"], bad["reason"], bad["message"]), (70, "internal", "'w'"))

    def test_many_tensors_make_a_bounded_number_of_series(self):
        job, _ = self.start(num_tensors=1000)
        self.assertEqual(job.metrics_address, "")
        page = prometheus_text.parse(job.metrics_text())
        self.assertLessEqual(sum(len(samples) for _, samples in page.values()), 500)
        self.assertEqual(prometheus_text.value(page, "telegrad_series_left_out"), 0)
        tensors = page["telegrad_residual_ratio"][1]
        self.assertEqual(len(tensors), 20)
        self.assertIn("layer999.weight", {dict(labels)["tensor"] for _, labels in tensors})

    def test_the_environment_says_where(self):
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"telegrad-{os.getpid()}.prom")
        os.environ["TELEGRAD_METRICS_PORT"] = "0"
        os.environ["TELEGRAD_METRICS_FILE"] = path.replace(str(os.getpid()), "%")
        try:
            job, _ = self.start()
            self.assertRegex(job.metrics_address, r"127\.0\.0\.1:\d+")
            job.close()
            with open(path, encoding="ascii") as file:
                prometheus_text.parse(file.read())
            os.remove(path)
            os.environ["TELEGRAD_METRICS_PORT"] = "http"
            workers.refused(telegrad.UsageError, telegrad.Job)
        finally:
            del os.environ["TELEGRAD_METRICS_PORT"], os.environ["TELEGRAD_METRICS_FILE"]
        for wrong in (-2, 65536, "a"):
            text = workers.refused(telegrad.UsageError,
                                   lambda: telegrad.Job(metrics_port=wrong))
            self.assertIn("metrics_port", text)
        workers.refused(telegrad.Error, lambda: telegrad.Job(metrics_file="/none/a.prom"))

    def test_the_client_s_parser_takes_it(self):
        try:
            from prometheus_client.parser import text_string_to_metric_families as parse
        except ImportError:
            self.skipTest("prometheus_client is not installed")
        job, _ = self.start()
        names = {each.name for each in parse(job.metrics_text())}
        self.assertIn("telegrad_round_seconds", names)

    def test_opentelemetry(self):
        try:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        except ImportError:
            self.skipTest("opentelemetry-sdk is not installed")
        job, _ = self.start()
        reader = InMemoryMetricReader()
        meter = MeterProvider([reader]).get_meter("test")
        telegrad.export_to_opentelemetry(meter)
        seen = {metric.name: [point.value for point in metric.data.data_points]
                for resource in reader.get_metrics_data().resource_metrics
                for scope in resource.scope_metrics for metric in scope.metrics}
        self.assertEqual(seen["telegrad_steps_total"], [17])


class WithoutJobs(unittest.TestCase):
    def test_there_is_nothing(self):
        self.assertEqual(telegrad.metrics(), {})
        workers.refused(telegrad.UsageError, telegrad.export_to_opentelemetry)


class Kubeflow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        key, self.ca, token = (os.path.join(folder.name, name) for name in ("key", "ca", "token"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", key, "-out", self.ca, "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        with open(token, "w", encoding="ascii") as file:
            file.write("of the pod\n")
        self.heard = heard = []

        class Controller(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                heard.append((self.path, self.headers["Authorization"], body["trainerStatus"]))
                self.send_response(500 if self.path == "/fails" else 200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Controller)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(.02,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        prefix = "KUBEFLOW_TRAINER_STATUS_"
        self.url = f"https://localhost:{self.server.server_port}"
        self.environ = {f"{prefix}URL": self.url + "/job", f"{prefix}TOKEN": token,
                        f"{prefix}CA_CERT": self.ca}
        self.said = workers.logged()

    def report(self, calls, **environ):
        """Seconds that the calls took."""
        given = {**self.environ, **{f"KUBEFLOW_TRAINER_STATUS_{name}": value if value else ""
                                    for name, value in environ.items()}}
        if "RANK" in environ:
            given["RANK"] = environ["RANK"]
        with mock.patch.dict(os.environ, given), \
                mock.patch.object(telegrad.kubeflow, "_REPORTER", telegrad.kubeflow._Reporter()):
            start = time.monotonic()
            for args, metrics in calls:
                telegrad.kubeflow.report(*args, **metrics)
            return time.monotonic() - start

    STEPS = [((step, 40), {"loss": np.float32(1 / step)}) for step in range(1, 41)]

    def test_the_first_step_and_the_last_are_told(self):
        self.report(self.STEPS)
        (path, token, first), (_, _, last) = self.heard
        self.assertEqual((path, token), ("/job", "Bearer of the pod"))
        self.assertEqual((first["progressPercentage"], last["progressPercentage"]), (2, 100))
        self.assertNotIn("estimatedRemainingSeconds", first)
        self.assertEqual(last["estimatedRemainingSeconds"], 0)
        self.assertEqual(last["metrics"], [{"name": "step", "value": "40"},
                                           {"name": "loss", "value": "0.02500000037252903"}])
        self.assertRegex(last["lastUpdatedTime"], r"^20..-..-..T..:..:.*[+]00:00$")
        self.assertEqual(self.said, [])

    def test_the_time_left_is_that_of_the_steps_made(self):
        with mock.patch.dict(os.environ, self.environ):
            reporter = telegrad.kubeflow._Reporter()
            reporter._first = time.monotonic() - 10, 100  # it goes on from step 100
            reporter.report(120, 200, {})
            reporter._thread.join()
        self.assertEqual(self.heard[-1][2]["estimatedRemainingSeconds"], 40)

    def test_without_an_end_there_is_no_percentage(self):
        self.report([((7,), {}), ((8, float("inf")), {})])
        for _ in range(100):
            if self.heard:
                break
            time.sleep(.02)
        (_, _, status), = self.heard
        self.assertEqual(sorted(status), ["lastUpdatedTime", "metrics"])

    def test_other_ranks_and_other_places_tell_nothing(self):
        self.report(self.STEPS, RANK="1")
        self.report(self.STEPS, URL="")
        self.assertEqual((self.heard, self.said), ([], []))

    def test_nothing_that_fails_ends_the_job_or_holds_it_up(self):
        for wrong, text in (({"URL": self.url + "/fails"}, "500"),
                            ({"URL": self.url.replace("https", "http")}, "https is wanted"),
                            ({"URL": "https://localhost:1/"}, "refused"),
                            ({"CA_CERT": "/etc/ssl/certs/ca-certificates.crt"}, "certificate"),
                            ({"CA_CERT": "/nowhere"}, "No such file"),
                            ({"TOKEN": "/nowhere"}, "No such file")):
            self.said.clear()
            self.assertLess(self.report(self.STEPS, **wrong), 5)
            line, = self.said
            self.assertRegex(line, f"Kubeflow Trainer does not hear .*{text}")
        self.said.clear()
        self.report([(("seven",), {})])
        self.assertIn("telegrad.kubeflow.report: ", *self.said)


if __name__ == "__main__":
    unittest.main()
