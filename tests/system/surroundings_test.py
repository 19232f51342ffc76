"""What a run stands on: its files are damaged, memory is short, the clock jumps."""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from harness import ENDLESS, SystemTest

FLAGS = ["--network", "mlp", "--data", "digits", "--num-epochs", "1",
         "--num-batches", "9", "--gc-type", "2bit"]
SAVING = [*FLAGS, "--checkpoint", "ck", "--checkpoint-every", "3"]


class Damaged(SystemTest):
    def setUp(self):
        super().setUp()
        self.run_to_end(SAVING)
        self.whole = self.summary()[0]["weights_sha256"]
        self.newest = self.path("ck", "step-000000000009")

    def flip(self, name, at):
        with open(os.path.join(self.newest, name), "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 16]))

    def swap(self):
        parts = [os.path.join(self.newest, f"worker-{rank}.part") for rank in (0, 1)]
        os.rename(parts[0], self.path("aside"))
        os.rename(parts[1], parts[0])
        os.rename(self.path("aside"), parts[1])

    def link(self, name):
        path = os.path.join(self.newest, name)
        os.rename(path, self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), path)

    def halve(self, name):
        path = os.path.join(self.newest, name)
        os.truncate(path, os.path.getsize(path) // 2)

    def test_another_one_is_taken_or_none(self):
        shutil.copytree(self.path("ck"), self.path("kept"))
        damages = {
            "flipped manifest": ("MANIFEST", lambda: self.flip("MANIFEST", 20)),
            "flipped part": ("worker-1.part", lambda: self.flip("worker-1.part", 4321)),
            "cut manifest": ("MANIFEST", lambda: self.halve("MANIFEST")),
            "cut part": ("worker-0.part", lambda: self.halve("worker-0.part")),
            "swapped parts": ("worker-0.part", self.swap),
            "absent part": ("worker-1.part", lambda: os.remove(
                os.path.join(self.newest, "worker-1.part"))),
            "linked manifest": ("MANIFEST", lambda: self.link("MANIFEST")),
            "linked part": ("worker-0.part", lambda: self.link("worker-0.part")),
        }
        for name, (file, damage) in damages.items():
            with self.subTest(name):
                shutil.rmtree(self.path("ck"))
                shutil.copytree(self.path("kept"), self.path("ck"))
                damage()
                shown = self.run_to_end(["--show-checkpoint", "ck"]).stdout()
                self.assertRegex(shown, rf"step 9.*{file}")
                self.assertRegex(shown, r"step 6 of 9, .*: whole")
                run = self.run_to_end([*SAVING, "--resume"])
                self.assertIn("passed over", run.stdout())
                self.assertIn(file, run.stdout())
                self.assertIn("resumed from step 6", run.stdout())
                self.assertEqual(self.summary()[0]["weights_sha256"], self.whole)
        shutil.rmtree(self.path("ck"))
        shutil.copytree(self.path("kept"), self.path("ck"))
        for step in os.listdir(self.path("ck")):
            self.newest = self.path("ck", step)
            self.flip("worker-0.part", 999)
        run = self.run_to_end([*SAVING, "--resume"], code=40)
        self.assertIn("worker-0.part", run.fatal_lines()[0]["message"])


class SharedMemory(SystemTest):
    SMALL = ["unshare", "-m", "sh", "-c",
             'mount -t tmpfs -o size=1m none /dev/shm && "$@" && ls -A /dev/shm', "sh"]

    def test_too_little_of_it_costs_time_alone(self):
        if subprocess.run([*self.SMALL, "true"], check=False, capture_output=True).returncode:
            self.skipTest("no file system can be mounted here")
        hashes = set()
        for transport in ("tcp", "ucx", "auto"):
            for prefix in ((), self.SMALL):
                run = self.run_to_end([*self.gradients(), "--gc-type", "2bit", "--workers",
                                       "3", "--transport", transport], prefix=prefix)
                hashes.add(self.summary()[0]["weights_sha256"])
                self.assertEqual(run.fatal_lines(), [])
        self.assertEqual(len(hashes), 1)

    def test_who_dies_in_it_is_named_and_leaves_nothing(self):
        for flags in (["ucx", "--tls", "shm"], ["tcp"]):
            with self.subTest(flags):
                run = self.start([*self.endless_gradients(), "--transport",
                                  *flags])
                self.wait_for_training(run)
                os.kill(self.member("worker 1"), signal.SIGKILL)
                self.assertEqual(self.wait(run, 10), 20, run.output())
                line, = run.fatal_lines()
                self.assertIn("worker/1", line["dead"][0])


# The time of day is later by what the file says; it counts who asks for it.
CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long* shared(void) {
  static volatile long* place;
  if (!place) {
    int fd = open(getenv("CLOCK_FILE"), O_RDWR | O_CLOEXEC);
    void* memory = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) abort();
    place = memory;
  }
  return place;
}
static long late(void) {
  volatile long* place = shared();
  __atomic_fetch_add(&place[1], 1, __ATOMIC_RELAXED);
  return place[0];
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += late();
  return result;
}
int gettimeofday(struct timeval* now, void* zone) {
  int result = syscall(SYS_gettimeofday, now, zone);
  now->tv_sec += late();
  return result;
}
time_t time(time_t* now) {
  struct timespec read;
  clock_gettime(CLOCK_REALTIME, &read);
  if (now) *now = read.tv_sec;
  return read.tv_sec;
}
"""


@unittest.skipUnless(shutil.which("cc"), "no C compiler is installed")
class Clock(SystemTest):
    def test_its_jumps_by_an_hour_change_nothing(self):
        with open(self.path("clock.c"), "w", encoding="utf-8") as file:
            file.write(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.path("clock.so"),
                        self.path("clock.c")], check=True)
        with open(self.path("clock"), "wb") as file:
            file.write(bytes(16))
        training = [*FLAGS[:-4], "--num-batches", "60", "--gc-type", "2bit",
                    "--disp-batches", "2"]
        self.run_to_end(training)
        whole = self.summary()[0]["weights_sha256"]
        run = self.start([*training, "--inject", "slow:1:100", "--dead-timeout", "3"],
                         env={"LD_PRELOAD": self.path("clock.so"),
                              "CLOCK_FILE": self.path("clock")})
        self.wait_for_training(run)
        with open(self.path("clock"), "r+b") as file, mmap.mmap(file.fileno(), 16) as clock:
            for hour in (3600, -3600, 3600):
                clock[:8] = struct.pack("q", hour)
                time.sleep(1)  # heartbeats and steps go on
            self.assertIsNone(run.process.poll(), "ended before it was tested")
            self.assertEqual(self.wait(run, 60), 0, run.output())
            asked, = struct.unpack("q", clock[8:])
        self.assertGreater(asked, 0, "nobody asks for the time of day")
        self.assertEqual(run.fatal_lines(), [])
        self.assertEqual(self.summary()[0]["weights_sha256"], whole)
        self.assertNotIn("suspect", run.output())
        self.assertLess(self.summary()[0]["seconds"], 600)


if __name__ == "__main__":
    unittest.main(verbosity=2)
