#!/usr/bin/env python3
"""What side_by_side makes of messages that go one way, or there and back,
and of OpenMPI where it is not installed.

    one_way_test.py ROOT
"""
import json
import os
import sys
import unittest
import unittest.mock

ROOT = os.path.abspath(sys.argv.pop())
sys.path.insert(0, os.path.join(ROOT, "perf", "side_by_side"))

import microbenchmarks  # noqa: E402
import table  # noqa: E402
import contestants  # noqa: E402
from contestants import ALL, OneWay, OpenMpi, Torch  # noqa: E402
from start import Run  # noqa: E402

MIB = 2**20


class FakeLab:
    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"


def run_of(num_bytes, iterations=1):
    run = Run("build", "vgg16", iterations, num_bytes=num_bytes)
    run.port = 7
    return run


class OneWayTest(unittest.TestCase):
    def test_reads_what_the_programs_print(self):
        # UCX 1.13.1: iterations; us 50 %, average, overall; MB/s average,
        # overall; messages/s average, overall.
        text = "20000 0.171 1.2 1.3 815.10 821.45 834663 841163\n"
        self.assertEqual(microbenchmarks.ucx_latency_us(text), 0.171)
        self.assertEqual(microbenchmarks.ucx_bytes_per_s(text), 821.45 * MIB)
        # libfabric 1.17.
        text = ("bytes   #sent   #ack     total       time     MB/sec    "
                "usec/xfer   Mxfers/sec\n"
                "64k     10      =10      1.2m        0.01s    76.50      "
                "856.70       0.00\n")
        self.assertEqual(microbenchmarks.pingpong_us(text), 856.70)

    def test_times_are_of_the_gradients_bytes(self):
        run = run_of(100 * MIB)
        peer = OneWay("ucx_perftest")
        line = json.dumps({"bytes_per_s": 50 * MIB})
        self.assertEqual(peer.seconds_of(line, run), [2])
        # A window of 64 MiB in a second; a message of 8 MiB in a second.
        row = json.dumps({"min_us": 1e6, "p50_us": 2e6, "max_us": 4e6})
        self.assertEqual(OneWay("telegrad-perf", "tcp").seconds_of(row, run),
                         [100 / 64, 200 / 64, 400 / 64])
        there_and_back = OneWay("telegrad-perf", "ofi", is_pingpong=True)
        self.assertEqual(there_and_back.seconds_of(row, run),
                         [100 / 8, 200 / 8, 400 / 8])

    def test_bytes_are_of_what_was_sent(self):
        run = run_of(100 * MIB, iterations=2)
        self.assertEqual(OneWay("ucx_perftest").payloads(run), 2)
        # 4 windows of 64 MiB for 200, and one to warm up.
        self.assertEqual(OneWay("telegrad-perf", "tcp").payloads(run),
                         5 * 64 / 100)
        # 26 messages of 8 MiB for 200 are 13 there and back, and one before.
        self.assertEqual(
            OneWay("telegrad-perf", "ofi", is_pingpong=True).payloads(run),
            2 * 14 * 8 / 100)

    def test_bytes_before_the_timed_steps_do_not_count_where_they_are_known(self):
        run = run_of(100 * MIB, iterations=1)
        line = json.dumps({"seconds": [2.0], "sent_bytes": 7.0})
        self.assertEqual(Torch("ddp").sent_bytes(line, 1000, run), 7)
        other = json.dumps({"seconds": [2.0]})  # with one to warm up
        self.assertEqual(OpenMpi().sent_bytes(other, 1000, run), 500)

    def test_the_ends_stand_on_two_hosts(self):
        run = run_of(100 * MIB)
        each_of = [one for one in ALL if isinstance(one, OneWay)]
        self.assertEqual(len({one.name for one in each_of}), len(each_of))
        for one in each_of:
            started = one.start(FakeLab, None, run)
            self.assertEqual({host for host, _, _ in started}, {0, 1})
            self.assertIn(FakeLab.address(0), " ".join(started[-1][2]))

    def test_the_table_knows_who_sends(self):
        result = {"seconds": [20.0], "sent_bytes": [100.0], "error": None}
        sums = table.summary({**result, "senders": 2}, 25, 10, 0)
        one_way = table.summary({**result, "senders": 1}, 25, 10, 0)
        self.assertEqual((sums["bits_per_element"], sums["link_s"]), (16, 5))
        self.assertEqual((one_way["bits_per_element"], one_way["link_s"]),
                         (32, 10))

    def test_open_mpi_says_what_is_not_installed(self):
        peer = OpenMpi()
        said = r"not installed: .*python3-mpi4py \(of /bin/false\)"
        with unittest.mock.patch.object(contestants, "TORCH_PYTHON",
                                        "/bin/false"):
            with self.assertRaisesRegex(RuntimeError, said):
                peer.start(FakeLab, None, run_of(MIB))

    def test_the_table_says_why_somebody_is_missing(self):
        said = "mpirun: Exit code: 1\n------\n\n"
        self.assertEqual(table.why_not({"error": said}),
                         "not measured: mpirun: Exit code: 1")
        self.assertEqual(table.why_not({"error": None}),
                         "not measured: no iteration")


if __name__ == "__main__":
    unittest.main(verbosity=2)
