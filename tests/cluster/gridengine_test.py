"""telegrad-launch in a parallel environment of a real Grid Engine on two hosts."""

import glob
import os
import re
import subprocess

import gridengine_cluster
import hosts

hosts.enter(gridengine_cluster.TOOLS)

import page  # noqa: E402
from cluster_case import LAUNCH, SHORT, TRAIN, ClusterCase, main  # noqa: E402
from common import Common  # noqa: E402
from gridengine_cluster import GROUP, USER  # noqa: E402

gridengine_cluster.start_grid_engine()


class GridEngine(ClusterCase, Common):
    def start(self, command, **more):
        """Jobs of root are refused."""
        hosts.run("chown", "-R", f"{USER}:{GROUP}", self.folder)
        user = ["setpriv", "--reuid", str(USER), "--regid", str(GROUP), "--clear-groups"]
        return super().start([*user, *command], **more)

    def submit(self, *words, options=()):
        """A process that ends with the job, and with its exit code."""
        printed = subprocess.run([*LAUNCH, "--print", "sge", *words], stdout=subprocess.PIPE,
                                 check=True, cwd=self.folder, text=True).stdout
        with open(f"{self.folder}/job.sh", "w") as file:
            file.write(printed)
        process = self.start(["qsub", "-sync", "y", "-o", "out", *options, "job.sh"])
        process.messages, process.log = process.log, f"{self.folder}/out"
        if not os.path.exists(process.log):
            open(process.log, "w").close()
            os.chmod(process.log, 0o666)
        return process

    def job(self, *words):
        return self.submit("-n", "2", "--", *words)

    def cancel(self, process):
        hosts.run("qdel", "-u", "tester", stdout=subprocess.DEVNULL)

    def accounts(self, process):
        """The exit code of each task that qacct has of a job that has ended."""
        with open(process.messages) as file:
            number = re.search(r"Your job(?:-array)? (\d+)", file.read())[1]
        text = hosts.wait_until(lambda: subprocess.run(
            ["qacct", "-j", number], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True).stdout, 15, "the job in qacct")
        return [int(code) for code in re.findall(r"^exit_status +(\d+)", text, re.MULTILINE)]

    def recorded(self, process):
        (code,) = self.accounts(process)
        return code

    def test_servers_are_processes_of_their_own(self):
        process = self.submit("-n", "2", "-s", "1", "--", TRAIN, *SHORT, "--out", "s")
        self.assertIn("[worker 0@n", self.ends(process, 0))
        self.assert_same_weights("s", 1)


    def follow(self, heading):
        """Types what docs/deploy/gridengine.md says, and waits for the jobs."""
        commands = page.follow(self, "gridengine", heading)
        wait = "while qstat -u '*' | grep -q .; do sleep 0.3; done"
        process = self.start(["sh", "-ec", "\n".join([*commands, wait])])
        process.messages = process.log
        self.end(process, 0)
        said = "".join(map(self.text, glob.glob("*.o*", root_dir=self.folder)))
        self.assertEqual(set(self.accounts(process)), {0}, said)
        return process

    def text(self, name):
        (path,) = glob.glob(f"{self.folder}/{name}")
        with open(path) as file:
            return file.read()

    def test_the_examples_of_the_page(self):
        self.follow("Smallest")
        self.assertIn("test accuracy", self.text("telegrad.o*"))
        self.follow("A real job")
        self.assertIn("test accuracy", self.text("train.out"))
        self.assertEqual(len(self.accounts(self.follow("Arrays"))), 2)
        self.assertEqual(self.text("array.out").count("test accuracy"), 2)


if __name__ == "__main__":
    main()
