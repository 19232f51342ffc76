"""What a cluster has beside CPUs: steps of JSON Patch (RFC 6902, "add" alone), which Kustomize's
components in deploy/kubernetes/overlays have, too."""
import copy

from ...verdict import RETRYABLE
from . import parts

# Where a Job has its Pods' templates.
_TEMPLATES = {
    "Job": lambda spec: ["/spec/template"],
    "JobSet": lambda spec: [f"/spec/replicatedJobs/{index}/template/spec/template"
                            for index in range(len(spec["replicatedJobs"]))],
    "MPIJob": lambda spec: ["/spec/mpiReplicaSpecs/Worker/template"],
    "TrainingRuntime": lambda spec: [
        "/spec/template/spec/replicatedJobs/0/template/spec/template"],
}
_QUEUED = ("Job", "JobSet", "MPIJob", "TrainJob")  # what a queue takes as a whole


class Overlay:
    """`container`, `pod`, `template`: steps below each; `queued`: below what a queue takes."""

    def __init__(self, container=(), pod=(), template=(), queued=(), is_workers=True, more=None):
        self.container, self.pod, self.template = container, pod, template
        self.queued, self.is_workers, self.more = queued, is_workers, more


def _pod_group(options):
    """As many Pods as start together."""
    roles = 1 if options.servers and options.kind == "jobset" else 0
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": parts.about(options),
            "spec": {"minMember": (options.workers or 1) + options.servers + roles}}


OVERLAYS = {
    "tcp": Overlay(container=[("/env/-", {"name": "TELEGRAD_TRANSPORT", "value": "tcp"})],
                   is_workers=False),
    # The name of the resource is the device plugin's.
    "rdma": Overlay(container=[("/resources/limits/rdma~1hca", "1"),
                               ("/securityContext/capabilities/add", ["IPC_LOCK"])],
                    is_workers=False),
    "gpu": Overlay(container=[("/resources/limits/nvidia.com~1gpu", "1")],
                   pod=[("/tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists",
                                           "effect": "NoSchedule"}])]),
    "kueue": Overlay(queued=[("/metadata/labels/kueue.x-k8s.io~1queue-name", "telegrad")]),
    "volcano": Overlay(template=[("/metadata/annotations", {"scheduling.k8s.io/group-name":
                                                            "telegrad"})],
                       pod=[("/schedulerName", "volcano")], is_workers=False, more=_pod_group),
    # Kubernetes 1.36: all containers of the Pod start again where they are.
    "restart-in-place": Overlay(container=[
        ("/restartPolicy", "Never"),
        ("/restartPolicyRules", [{"action": "RestartAllContainers", "exitCodes": {
            "operator": "In", "values": sorted(RETRYABLE)}}])], is_workers=False),
}


def names(text):
    return [name for name in (text or "").split(",") if name]


def steps(name, thing):
    """(path, value) of what `name` adds to an object."""
    its, kind = OVERLAYS[name], thing["kind"]
    made = list(its.queued) if kind in _QUEUED else []
    places = _TEMPLATES[kind](thing["spec"]) if kind in _TEMPLATES else []
    for place in places[-1:] if its.is_workers else places:
        for below, some in (("", its.template), ("/spec", its.pod),
                            ("/spec/containers/0", its.container)):
            made += [(place + below + path, value) for path, value in some]
    return made


def _add(thing, path, value):
    *way, last = [word.replace("~1", "/") for word in path.split("/")[1:]]
    for word in way:
        thing = thing[int(word) if isinstance(thing, list) else word]
    if isinstance(thing, list):
        thing.append(value)
    else:
        thing[last] = value


def apply(name, made, options):
    for thing in made:
        for path, value in steps(name, thing):
            if name == "volcano" and isinstance(value, dict):
                value = {key: options.name for key in value}
            _add(thing, path, copy.deepcopy(value))
    if OVERLAYS[name].more:
        made.append(OVERLAYS[name].more(options))
