"""An Indexed Job with a headless Service, which need no operator: a Pod for each rank."""
import os

from ..errors import Refused
from ..options import has_flag, variables
from ..plan import TELEGRAD, program_name
from ..verdict import FINAL
from .yaml_text import documents

_PORT = 29500
_FOLDER = "/run/telegrad"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def _words(options):
    words = list(options.program)
    if program_name(words) not in TELEGRAD:
        if options.servers:
            raise Refused("-s: ranks of a Job of Kubernetes run one program, and only "
                          "Telegrad's take the last ranks as servers")
        return words
    if options.servers and not has_flag(words, "--servers"):
        words += ["--servers", str(options.servers)]
    return [*words, "--bind", "auto", "--secret-file", f"{_FOLDER}/secret"]


def _environment(options, world):
    given = {"WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
             "MASTER_ADDR": f"{options.name}-0.{options.name}", "MASTER_PORT": str(_PORT),
             "TELEGRAD_SECRET_FILE": f"{_FOLDER}/secret", "TELEGRAD_BIND": "auto",
             **variables(options.env + options.env_worker, os.environ)}
    return [{"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
            *({"name": name, "value": value} for name, value in given.items())]


def _pod(options, world):
    shut = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    common = {"image": options.image, "securityContext": shut}
    resources = {"cpu": "100m", "memory": "64Mi"}
    return {
        "restartPolicy": "Never", "subdomain": options.name,
        "terminationGracePeriodSeconds": 30, "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000,
                            "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [{
            # A Secret's files are links and root's; the programs want a file of their user.
            "name": "secret", **common,
            "command": ["install", "-m", "0400", "/secret/secret", f"{_FOLDER}/secret"],
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": [{"name": "secret", "mountPath": "/secret", "readOnly": True},
                             {"name": "own", "mountPath": _FOLDER}]}],
        "containers": [{
            "name": "rank", **common, "command": _words(options),
            "env": _environment(options, world),
            "ports": [{"name": "scheduler", "containerPort": _PORT}],
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"},
                          "limits": {"memory": "4Gi"}},
            "volumeMounts": [{"name": "own", "mountPath": _FOLDER, "readOnly": True},
                             {"name": "shm", "mountPath": "/dev/shm"}]}],
        "volumes": [
            {"name": "secret", "secret": {"secretName": options.name, "defaultMode": 0o400,
                                          "optional": False}},
            {"name": "own", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]}


def text(options):
    world = (options.workers or 1) + options.servers
    labels = {"app.kubernetes.io/name": "telegrad", "app.kubernetes.io/instance": options.name}
    about = {"name": options.name, "labels": labels}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": about,
               "spec": {"clusterIP": "None", "publishNotReadyAddresses": True,
                        "selector": labels,
                        "ports": [{"name": "scheduler", "port": _PORT}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {
        "completionMode": "Indexed", "completions": world, "parallelism": world,
        "backoffLimit": options.restart * world,
        "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "rank", "operator": "In",
                                                  "values": sorted(FINAL)}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget",
                                                      "status": "True"}]}]},
        "template": {"metadata": {"labels": labels}, "spec": _pod(options, world)}}}
    return ("# The secret, once, before the Job:\n"
            f"#   head -c 32 /dev/urandom | kubectl create secret generic {options.name} "
            "--from-file=secret=/dev/stdin\n" + documents(service, job))
