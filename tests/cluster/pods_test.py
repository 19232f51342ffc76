"""Jobs and JobSets of Kubernetes in Pods that podman runs; the commands are docs/deploy's.

TELEGRAD_IMAGE names the archive of the trainer's image, which ./telegrad image trainer makes.
"""
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
import unittest

import hosts

ARCHIVE = os.environ.get("TELEGRAD_IMAGE", "")
if not os.path.exists(ARCHIVE):
    hosts.skip("no image: ./telegrad image trainer, then TELEGRAD_IMAGE="
               "build/image/telegrad-trainer.tar")
hosts.enter(["podman", "crun", "iptables", "catatonit"])

import cluster_case  # noqa: E402
import pods  # noqa: E402
from cluster_case import LAUNCH, ROOT  # noqa: E402

yaml = None
try:
    import yaml
except ImportError:
    hosts.skip("no python3-yaml here")

PAGE = f"{ROOT}/docs/deploy/kubernetes.md"
SHORT = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "10", "--log-json"]
# Some seconds, in which somebody can be killed.
LONGER = ["--network", "mlp", "--num-epochs", "1", "--num-batches", "150", "--disp-batches", "10",
          "--link", "100mbit", "--log-json"]
# As a kubectl that hands all to the imitated cluster.
KUBECTL = """#!/bin/sh
case "$1 $2" in
"create secret") cat > "$CLUSTER/secret" ;;
"apply -k") {kubectl} kustomize "$3" > "$CLUSTER/objects.yaml" ;;
"apply -f") cp "$3" "$CLUSTER/objects.yaml" ;;
*) exit 2 ;;
esac
"""


def page_commands():
    """Lines of the page that are commands, under their heading."""
    with open(PAGE) as file:
        text = file.read()
    return {part.partition("\n")[0]: re.findall(r"^    (.*)$", part, re.MULTILINE)
            for part in text.split("\n## ")}


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # crun refuses cgroups of both versions.
        subprocess.run(["umount", "-l", "/sys/fs/cgroup/unified"], stderr=subprocess.DEVNULL,
                       check=False)
        cls.folder = hosts.private_folder()
        cls.storage = os.path.join(os.path.dirname(os.path.abspath(ARCHIVE)), "podman")
        cls.kubelet = pods.Kubelet(cls.folder, cls.storage)
        cls.kubelet.load(ARCHIVE, "localhost/telegrad-trainer:latest")
        cls.kubelet.podman("network", "create", "cluster")

    @classmethod
    def tearDownClass(cls):
        cls.kubelet.podman("pod", "rm", "--all", "--force", check=False)
        cls.kubelet.podman("network", "rm", "--force", "cluster", check=False)

    def setUp(self):
        self.kubelet.secrets = {"telegrad": {"secret": secrets.token_bytes(32)}}
        self.cluster = pods.Cluster(self.kubelet)

    def objects(self, arguments):
        text = subprocess.run([*LAUNCH, "--print", "kubernetes", "--image", "telegrad-trainer",
                               *arguments], stdout=subprocess.PIPE, check=True).stdout
        return list(yaml.safe_load_all(text))

    def shell(self, command):
        """A command of the page, whose kubectl is ours."""
        binaries = f"{self.folder}/bin"
        os.makedirs(binaries, exist_ok=True)
        with open(f"{binaries}/kubectl", "w") as file:
            file.write(KUBECTL.format(kubectl=shutil.which("kubectl")))
        with open(f"{binaries}/telegrad-launch", "w") as file:
            file.write(f"#!/bin/sh\nexec {shlex.join(LAUNCH)} \"$@\"\n")
        for name in ("kubectl", "telegrad-launch"):
            os.chmod(f"{binaries}/{name}", 0o755)
        subprocess.run(["bash", "-ec", command], check=True, cwd=ROOT, env={
            **os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "CLUSTER": self.folder})

    def sums(self):
        """weights_sha256 of each result that a log has."""
        return set(re.findall(r'"weights_sha256":"([0-9a-f]{64})"', "".join(
            self.cluster.logs.values())))

    def expect(self, verdict, objects, **more):
        found = self.cluster.run(objects, **more)
        self.assertEqual(found, verdict, (self.cluster.ends, self.cluster.logs))

    def test_the_smallest_job_of_the_page_trains(self):
        if shutil.which("kubectl") is None:
            self.skipTest("no kubectl here, whose Kustomize the page needs")
        for command in page_commands()["The smallest job"][:2]:
            self.shell(command)
        with open(f"{self.folder}/secret", "rb") as file:
            self.kubelet.secrets["telegrad"]["secret"] = file.read()
        self.assertEqual(len(self.kubelet.secrets["telegrad"]["secret"]), 32)
        with open(f"{self.folder}/objects.yaml") as file:
            objects = list(yaml.safe_load_all(file))
        self.expect("Complete", objects)
        self.assertEqual(self.cluster.ends, [])

    def test_a_job_has_the_weights_of_one_host(self):
        self.expect("Complete", self.objects(["-n", "2", "--", "telegrad-train",
                                              *cluster_case.SHORT, "--log-json"]))
        (there,) = self.sums()
        self.assertEqual(there, cluster_case.hash_on_one_host(2))
        cluster_case.add_row(servers=2, weights=there)

    def test_a_jobset_has_its_roles_and_starts_again_when_a_worker_is_killed(self):
        killed = []

        def kill_one(cluster):
            job = cluster.jobs[-1]
            if '"event":"progress"' not in self.kubelet.logs(job.pods[0], "worker"):
                return False
            self.kubelet.kill(job.pods[1], "worker")
            killed.append(job.pods[1])
            return True

        objects = self.objects(["--kind", "jobset", "-n", "2", "-s", "1", "--restart", "2", "--",
                                "telegrad-train", *LONGER])
        self.expect("Complete", objects, on_look=kill_one)
        self.assertEqual((len(killed), self.cluster.restarts), (1, 1))
        self.assertIn(137, [code for _, code in self.cluster.ends])
        self.assertEqual(len(self.sums()), 1)

    def test_a_killed_pod_ends_the_job_with_20_which_counts(self):
        def kill_one(cluster):
            job = cluster.jobs[0]
            if '"event":"progress"' not in self.kubelet.logs(job.pods[0], "rank"):
                return False
            self.kubelet.kill(job.pods[1], "rank")
            return True

        objects = self.objects(["-n", "2", "--", "telegrad-train", *LONGER])
        objects[-1]["spec"]["backoffLimit"] = 1  # both ends are seen
        self.expect("BackoffLimitExceeded", objects, on_look=kill_one)
        self.assertIn((1, 137), self.cluster.ends)
        self.assertIn("peer_died", "".join(self.cluster.logs.values()))

    def test_a_wrong_secret_fails_the_job_at_once(self):
        objects = self.objects(["-n", "2", "--restart", "3", "--", "telegrad-train", *SHORT])
        start = self.kubelet.start

        def start_with_another(pod):
            if pod["metadata"]["annotations"][pods.INDEX] == "1":
                self.kubelet.secrets["telegrad"] = {"secret": secrets.token_bytes(32)}
            start(pod)

        self.kubelet.start = start_with_another
        try:
            self.expect("PodFailurePolicy", objects)
        finally:
            del self.kubelet.start
        self.assertIn(30, [code for _, code in self.cluster.ends])
        self.assertIn("authentication", "".join(self.cluster.logs.values()))

    def test_a_pod_that_does_not_come_is_named(self):
        objects = self.objects(["-n", "2", "--", "telegrad-train", *SHORT, "--join-timeout", "5"])
        start = self.kubelet.start
        self.kubelet.start = lambda pod: (
            pod["metadata"]["annotations"][pods.INDEX] == "0" and start(pod))
        try:
            self.expect("BackoffLimitExceeded", objects)
        finally:
            del self.kubelet.start
        self.assertEqual(self.cluster.ends, [(0, 25)])
        self.assertIn("missing: worker/1", "".join(self.cluster.logs.values()))

    def test_pods_of_a_deleted_job_end_within_five_seconds(self):
        took = []

        def delete(cluster):
            job = cluster.jobs[0]
            if '"event":"progress"' not in self.kubelet.logs(job.pods[0], "rank"):
                return False
            started = time.monotonic()
            self.kubelet.stop(job.pods.values())
            took.append(time.monotonic() - started)
            return True

        objects = self.objects(["-n", "2", "--", "telegrad-train", *LONGER])
        objects[-1]["spec"]["backoffLimit"] = 1  # both ends are seen
        self.expect("BackoffLimitExceeded", objects, on_look=delete)
        self.assertLess(took[0], 5)
        self.assertEqual({code for _, code in self.cluster.ends} - {33, 143}, set())
        self.assertIn('"reason":"cancelled"', "".join(self.cluster.logs.values()))

    def test_no_log_and_no_object_has_the_secret(self):
        secret = self.kubelet.secrets["telegrad"]["secret"]
        objects = self.objects(["-n", "1", "--", "telegrad-train", *SHORT])
        self.expect("Complete", objects)
        for text in (json.dumps(objects), *self.cluster.logs.values()):
            self.assertNotIn(secret.hex(), text)


if __name__ == "__main__":
    cluster_case.main()
