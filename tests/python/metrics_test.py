#!/usr/bin/env python3
"""What jobs in this process count, as a dictionary, at a port and by OpenTelemetry."""
import os
import sys
import unittest
import urllib.request

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad

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


if __name__ == "__main__":
    unittest.main()
