"""What all kinds of jobs have: labels, Pods, rules of failure, who may connect."""
import os

from ...agent_words import SECRET_FILE
from ...options import has_flag, value_of, variables
from ...plan import program_name
from ...verdict import FINAL

PORT = 29500
_FOLDER = "/run/telegrad"
SECRET = f"{_FOLDER}/secret"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Variables whose value is the Pod's index among those of its role.
_BY_INDEX = ("RANK", "GROUP_RANK", "DMLC_RANK", "DMLC_TASK_ID", "DMLC_WORKER_ID",
             "DMLC_SERVER_ID")
# Of all ranks, once a process has failed: they wait for reasons for 5 s, and are killed 3 s later.
_GRACE_S = 30


def labels(options):
    return {"app.kubernetes.io/name": "telegrad", "app.kubernetes.io/instance": options.name}


def about(options, **more):
    return {"name": options.name, "labels": labels(options), **more}


def template(options, spec):
    return {"metadata": {"labels": labels(options)}, "spec": spec}


def environment(found):
    """Of a container: `found`, with the index in place of what it decides."""
    index = {"valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    return [{"name": name, **(index if name in _BY_INDEX else
                              {"value": SECRET if value == SECRET_FILE else value})}
            for name, value in found.items()]


def ours(options, given):
    return variables(options.env + given, os.environ)


# $0: the folder of checkpoints; the rest: the program.
_GO_ON = 'if "$1" --show-checkpoint "$0" >/dev/null; then exec "$@" --resume; fi; exec "$@"'


def going_on(options, words):
    """`words`, which go on from a checkpoint where one is there, as --restart does elsewhere."""
    folder = value_of(words, "--checkpoint")
    if not options.restart or not folder or has_flag(words, "--resume") or \
            program_name(words) != "telegrad-train":
        return words
    return ["sh", "-c", _GO_ON, folder, *words]


def pod(options, name, words, env, *, ports=(("scheduler", PORT),), cpu="2", memory="4Gi",
        probe=None, has_secret=True, **more):
    """`more`: of the Pod, beside what all have. `words` None: another object has them."""
    container = {"name": name, "image": options.image, "securityContext": _shut()}
    if words is not None:
        container["command"] = words
    container["env"] = environment(env)
    if ports:
        container["ports"] = [{"name": each, "containerPort": number} for each, number in ports]
    if probe:
        container["readinessProbe"] = {"tcpSocket": {"port": probe}, "periodSeconds": 2}
    container["resources"] = {"requests": {"cpu": cpu, "memory": memory},
                              "limits": {"memory": memory}}
    mounts = [{"name": "own", "mountPath": _FOLDER, "readOnly": True}] if has_secret else []
    container["volumeMounts"] = [*mounts, {"name": "shm", "mountPath": "/dev/shm"}]
    spec = {
        "restartPolicy": "Never", **more,
        "terminationGracePeriodSeconds": _GRACE_S, "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000,
                            "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}}
    if has_secret:
        spec["initContainers"] = [_install_secret(options)]
    spec["containers"] = [container]
    volumes = [
        {"name": "secret", "secret": {"secretName": options.name, "defaultMode": 0o400,
                                      "optional": False}},
        {"name": "own", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    spec["volumes"] = [*(volumes if has_secret else []),
                       {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    return spec


def _shut():
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _install_secret(options):
    """A Secret's files are links and root's; the programs want a file of their user."""
    resources = {"cpu": "100m", "memory": "64Mi"}
    return {"name": "secret", "image": options.image, "securityContext": _shut(),
            "command": ["sh", "-c", f"umask 0377 && rm -f {SECRET} && "
                        f"cat /secret/secret > {SECRET}"],
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": [{"name": "secret", "mountPath": "/secret", "readOnly": True},
                             {"name": "own", "mountPath": _FOLDER}]}


def failure_rules(container):
    """What no other start can mend fails the Job; what moves a Pod counts as no failure."""
    return {"rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": container, "operator": "In",
                                              "values": sorted(FINAL)}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget",
                                                  "status": "True"}]}]}


def indexed_job(count, container, backoff_limit, pod_template):
    return {"completionMode": "Indexed", "completions": count, "parallelism": count,
            "backoffLimit": backoff_limit, "podFailurePolicy": failure_rules(container),
            "template": pod_template}


def set_failure_policy(options):
    """Of a JobSet: all its Jobs start again, unless a code says that this cannot help."""
    return {"maxRestarts": options.restart, "rules": [
        {"name": "final", "action": "FailJobSet",
         "onJobFailureReasons": ["PodFailurePolicy"]}]}


def service(options):
    return {"apiVersion": "v1", "kind": "Service", "metadata": about(options),
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True,
                     "selector": labels(options),
                     "ports": [{"name": "scheduler", "port": PORT}]}}


def network_policy(options):
    """Only Pods of the job connect to its Pods."""
    its = {"matchLabels": labels(options)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": about(options),
            "spec": {"podSelector": its, "policyTypes": ["Ingress"],
                     "ingress": [{"from": [{"podSelector": its}]}]}}
