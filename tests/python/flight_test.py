#!/usr/bin/env python3
"""What a process's jobs did last, as files that PyTorch's fr_trace reads."""
import os
import pickle
import tempfile
import unittest

import workers

try:
    import numpy as np
except ImportError:
    workers.skip("python3-numpy is not installed")

import telegrad


class Plain(pickle.Unpickler):
    """Reads data alone: nothing may be imported or called."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def read(path):
    with open(path, "rb") as file:
        return Plain(file).load()


class FlightRecord(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, ends_well=True, **options):
        job = telegrad.Job(**options).join()
        if ends_well:
            self.addCleanup(job.close)
        store = telegrad.Store(job)
        value = np.ones(100, np.float32)
        keys = store.init(["fc.weight"], [value])
        for _ in range(3):
            store.push_pull(keys, [value], [np.empty_like(value)])
        return job

    def test_it_has_the_operations_and_frames_of_each_member(self):
        self.start()
        files = telegrad.dump_flight_record(self.folder)
        self.assertEqual(files, [os.path.join(self.folder, name)
                                 for name in ("server_0", "worker_0")])
        server, worker = map(read, files)
        rounds = [entry for entry in worker["entries"]
                  if entry["process_group"] == ["rounds", "dist_sync"]]
        self.assertEqual([entry["step"] for entry in rounds], [0, 1, 2])
        self.assertEqual({entry["state"] for entry in worker["entries"]}, {"completed"})
        self.assertEqual((rounds[2]["tensor"], rounds[2]["input_sizes"]),
                         ("fc.weight", [[100]]))
        self.assertEqual((worker["waiting"], server["waiting"]), ([], []))
        kinds = [frame[1:3] for frame in worker["frames"]["server/0"]]
        self.assertEqual(kinds[-2:], [["sent", "push"], ["received", "reply"]])
        self.assertEqual([frame[2:] for frame in server["frames"]["worker/0"]],
                         [frame[2:] for frame in worker["frames"]["server/0"]])

    def test_a_failure_names_the_file(self):
        os.environ["TELEGRAD_FLIGHT_RECORDER"] = self.folder
        self.addCleanup(os.environ.pop, "TELEGRAD_FLIGHT_RECORDER")
        job = self.start(ends_well=False)
        job.fail("enough", 42)
        text = workers.refused(telegrad.NumericFault, job.barrier)
        workers.refused(telegrad.NumericFault, job.close)
        self.assertIn(f"enough; flight records: {self.folder}", text)
        self.assertEqual(sorted(os.listdir(self.folder)), ["server_0", "worker_0"])

    def test_a_folder_is_needed(self):
        job = self.start()
        self.assertIn("TELEGRAD_FLIGHT_RECORDER",
                      workers.refused(telegrad.UsageError, job.dump_flight_record))
        self.assertIn("/proc/none", workers.refused(
            telegrad.Error, lambda: job.dump_flight_record("/proc/none")))
        self.assertIn("flight_recorder /proc/none", workers.refused(
            telegrad.UsageError, lambda: telegrad.Job(flight_recorder="/proc/none")))
        self.assertEqual(len(self.start(flight_recorder=self.folder).dump_flight_record()), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
