"""Pods of a Job or a JobSet, as the controllers of Kubernetes make them and a kubelet runs them.

What is imitated: names, host names and addresses of Pods, their index, volumes, a start again by
podFailurePolicy, backoffLimit and failurePolicy. podman runs the containers, on a bridge with DNS.
"""
import copy
import json
import os
import re
import shutil
import subprocess
import time

USER = 1000
INDEX = "batch.kubernetes.io/job-completion-index"


def resolve(pod, path):
    """What a fieldRef means."""
    match = re.fullmatch(r"metadata\.(annotations|labels)\['(.+)'\]", path)
    return pod["metadata"][match.group(1)][match.group(2)]


def pods_of_job(spec, job_name, start, labels=None):
    """One Pod for each index, as the controller of Jobs makes them."""
    for index in range(spec["completions"]):
        yield pod_of_job(spec, job_name, index, start, labels)


def pod_of_job(spec, job_name, index, start, labels=None):
    pod = copy.deepcopy(spec["template"])
    about = pod.setdefault("metadata", {})
    about["name"] = f"{job_name}-{index}-{start:05d}"
    about["labels"] = {**about.get("labels", {}), **(labels or {}),
                       "batch.kubernetes.io/job-name": job_name}
    about["annotations"] = {**about.get("annotations", {}), INDEX: str(index)}
    pod["spec"]["hostname"] = f"{job_name}-{index}"
    for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
        container.setdefault("env", []).append(
            {"name": "JOB_COMPLETION_INDEX", "valueFrom": {
                "fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}})
    return {"apiVersion": "v1", "kind": "Pod", **pod}


class Kubelet:
    """`folder` is on a tmpfs. Secrets: name -> file -> bytes."""

    def __init__(self, folder, storage):
        self._folder, self._storage, self.secrets = folder, storage, {}
        # In /var/tmp, not in memory, images are unpacked.
        self._environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        # The storage, which stays, remembers the path of what does not.
        self._podman = ["podman", "--root", storage, "--runroot", "/run/telegrad-pods",
                        "--storage-driver", "overlay", "--cgroup-manager", "cgroupfs",
                        "--network-backend", "netavark",
                        "--network-config-dir", f"{folder}/networks"]
        self.podman("pod", "rm", "--all", "--force", check=False)  # of one that was killed

    def load(self, archive, name):
        """Once for each state of `archive`."""
        its = os.stat(archive)
        state, mark = f"{its.st_mtime_ns} {its.st_size}", f"{self._storage}.loaded"
        if os.path.exists(mark):
            with open(mark, encoding="utf-8") as file:
                if file.read() == state:
                    return
        loaded = self.podman("load", "-q", "-i", archive).rpartition(": ")[2].strip()
        self.podman("tag", loaded, name)
        with open(mark, "w", encoding="utf-8") as file:
            file.write(state)

    def podman(self, *words, check=True):
        done = subprocess.run([*self._podman, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, env=self._environment)
        if check and done.returncode != 0:
            raise AssertionError(f"podman {words}: {done.stderr.decode()}{done.stdout.decode()}")
        return done.stdout.decode() + (done.stderr.decode() if words[0] == "logs" else "")

    def _volume(self, pod, volume):
        """The folder that a volume is: of root and the Pod's group, as with fsGroup."""
        place = os.path.join(self._folder, pod["metadata"]["name"], volume["name"])
        os.makedirs(place)
        os.chown(place, 0, USER)
        os.chmod(place, 0o2777)
        if "secret" in volume:
            its = volume["secret"]
            os.mkdir(f"{place}/..of_now")
            for name, data in self.secrets[its["secretName"]].items():
                path = f"{place}/..of_now/{name}"
                with open(path, "wb") as file:
                    file.write(data)
                os.chown(path, 0, USER)
                os.chmod(path, its["defaultMode"] | 0o040)
                os.symlink(f"..of_now/{name}", f"{place}/{name}")
        return {"name": volume["name"], "hostPath": {"path": place, "type": "Directory"}}

    def start(self, pod):
        pod = copy.deepcopy(pod)
        spec = pod["spec"]
        for container in spec["containers"] + spec.get("initContainers", []):
            container["imagePullPolicy"] = "Never"
            container["image"] = f"localhost/{container['image']}"
            container.pop("readinessProbe", None)
            container.pop("resources", None)  # one machine has not what a job asks for
            container.pop("ports", None)  # podman would listen on the host's
            for each in container["env"]:
                if "valueFrom" in each:
                    path = each.pop("valueFrom")["fieldRef"]["fieldPath"]
                    each["value"] = resolve(pod, path)
        spec["volumes"] = [self._volume(pod, volume) for volume in spec["volumes"]]
        name = pod["metadata"]["name"]
        path = os.path.join(self._folder, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(pod, file)
        alias = f"{spec['hostname']}.{spec['subdomain']}"
        self.podman("play", "kube", "--network", f"cluster:alias={alias}", path)

    def states(self):
        """Pod's name -> None while it runs, else the exit code of its container."""
        found = {}
        for each in json.loads(self.podman("ps", "-a", "--pod", "--format", "json")):
            if each["IsInfra"] or "-secret" in each["Names"][0]:
                continue
            found[each["PodName"]] = each["ExitCode"] if each["State"] == "exited" else None
        return found

    def logs(self, pod_name, container):
        return self.podman("logs", f"{pod_name}-{container}", check=False)

    def kill(self, pod_name, container):
        self.podman("kill", "--signal", "KILL", f"{pod_name}-{container}")

    def stop(self, pod_names):
        """As of Pods that are deleted: SIGTERM to all, and time to end."""
        self.podman("pod", "stop", "--time", "30", *pod_names)

    def remove(self, pod_names):
        for name in pod_names:
            self.podman("pod", "rm", "--force", "--time", "10", name, check=False)
            shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)


class Job:
    """A Job under its controller. `verdict`: None, "Complete", or why it has failed."""

    def __init__(self, kubelet, spec, name, subdomain, container):
        self._kubelet, self._spec, self.name = kubelet, spec, name
        spec["template"]["spec"]["subdomain"] = subdomain
        self._container = container
        self._starts = 0
        self.verdict, self.failures, self.logs, self.ends = None, 0, {}, []
        self.pods = {}  # index -> name

    def start(self):
        for index in range(self._spec["completions"]):
            self._start(index)

    def _start(self, index):
        pod = pod_of_job(self._spec, self.name, index, self._starts)
        self._starts += 1
        self._kubelet.start(pod)
        self.pods[index] = pod["metadata"]["name"]

    def _rule(self, code):
        for rule in self._spec["podFailurePolicy"]["rules"]:
            its = rule.get("onExitCodes")
            if its and code in its["values"]:
                return rule["action"]
        return "Count"

    def look(self, states):
        ended = {index: states[pod] for index, pod in self.pods.items()
                 if states.get(pod) is not None}
        for index in ended:
            self.logs[self.pods[index]] = self._kubelet.logs(self.pods[index], self._container)
        if self.verdict:
            return
        failed = [(index, code) for index, code in ended.items() if code != 0]
        self.ends += failed
        self.failures += len(failed)
        if any(self._rule(code) == "FailJob" for _, code in failed):
            self.verdict = "PodFailurePolicy"
        elif self.failures > self._spec["backoffLimit"]:
            self.verdict = "BackoffLimitExceeded"
        elif len(ended) - len(failed) == self._spec["completions"]:
            self.verdict = "Complete"
        else:
            for index, _ in failed:
                self._kubelet.remove([self.pods[index]])
                self._start(index)

    def remove(self):
        self._kubelet.remove(self.pods.values())


class Cluster:
    """Applies objects, and runs the Job or JobSet among them to its end."""

    def __init__(self, kubelet):
        self._kubelet = kubelet
        self.jobs, self.ends, self.logs, self.restarts = [], [], {}, 0

    def _make(self, thing, start):
        name, spec = thing["metadata"]["name"], copy.deepcopy(thing["spec"])
        if thing["kind"] == "Job":
            its = spec["template"]["spec"]
            return [Job(self._kubelet, spec, name, its["subdomain"], its["containers"][0]["name"])]
        return [Job(self._kubelet, copy.deepcopy(each["template"]["spec"]),
                    f"{name}-{each['name']}-0", name, each["name"])
                for each in spec["replicatedJobs"]]

    def _begin(self, thing):
        self.jobs = self._make(thing, self.restarts)
        for job in self.jobs:
            job.start()

    def _finish(self):
        for job in self.jobs:
            self.ends += job.ends
            self.logs.update(job.logs)
            job.remove()

    def run(self, objects, seconds=120, on_look=None):
        """The verdict. `on_look(cluster)` is called until it returns True."""
        thing = next(each for each in objects if each["kind"] in ("Job", "JobSet"))
        deadline = time.monotonic() + seconds
        self._begin(thing)
        try:
            while time.monotonic() < deadline:
                states = self._kubelet.states()
                for job in self.jobs:
                    job.look(states)
                verdict = self._verdict(thing)
                if verdict:
                    return verdict
                if on_look and on_look(self):
                    on_look = None
                time.sleep(0.2)
            return f"nothing after {seconds} s: {states}"
        finally:
            for job in self.jobs:  # also of those that are ended now
                for pod in job.pods.values():
                    self.logs.setdefault(pod, self._kubelet.logs(pod, job._container))
            self._finish()

    def _verdict(self, thing):
        if thing["kind"] == "Job":
            return self.jobs[0].verdict
        wanted = thing["spec"]["successPolicy"]["targetReplicatedJobs"]
        failed = [job.verdict for job in self.jobs if job.verdict not in (None, "Complete")]
        if failed:
            rules = thing["spec"]["failurePolicy"]
            final = any(failed[0] in rule["onJobFailureReasons"] for rule in rules["rules"])
            if final or self.restarts >= rules["maxRestarts"]:
                return failed[0]
            self._finish()
            self.restarts += 1
            self._begin(thing)
            return None
        names = [f"{thing['metadata']['name']}-{each}-0" for each in wanted]
        if all(job.verdict == "Complete" for job in self.jobs if job.name in names):
            return "Complete"
        return None
