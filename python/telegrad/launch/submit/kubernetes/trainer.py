"""A runtime of Kubeflow Trainer, for scripts that torchrun starts, and a TrainJob that uses it."""
from ...errors import Refused
from ...plan import TELEGRAD, program_name
from . import parts

_GROUP = "trainer.kubeflow.org"
_NODE = "node"  # as Kubeflow names the Job and the container that it fills


def objects(options):
    if options.servers or program_name(options.program) in TELEGRAD:
        raise Refused("--kind trainer starts scripts, by torchrun: -- torchrun train.py; "
                      "--kind jobset runs Telegrad's programs and servers")
    env = {"TELEGRAD_SECRET_FILE": parts.SECRET, "TELEGRAD_BIND": options.bind,
           **parts.ours(options, options.env_worker)}
    pod = parts.pod(options, _NODE, None, env)
    count = options.workers or 1
    job = {"name": _NODE, "replicas": 1, "template": {
        "metadata": {"labels": {f"{_GROUP}/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "podFailurePolicy": parts.failure_rules(_NODE),
                 "template": parts.template(options, pod)}}}
    runtime = {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "TrainingRuntime",
               "metadata": parts.about(options),
               "spec": {"mlPolicy": {"numNodes": count, "torch": {}},
                        "template": {"spec": {
                            "network": {"publishNotReadyAddresses": True},
                            "failurePolicy": parts.set_failure_policy(options),
                            "replicatedJobs": [job]}}}}
    train_job = {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "TrainJob",
                 "metadata": parts.about(options),
                 "spec": {"runtimeRef": {"apiGroup": _GROUP, "kind": "TrainingRuntime",
                                         "name": options.name},
                          "trainer": {"image": options.image, "command": options.program,
                                      "numNodes": count}}}
    return [parts.network_policy(options), runtime, train_job]
