"""A JobSet (jobset.sigs.k8s.io): a Job for each role, and starts of all again as one."""
from ...agent_words import SECRET_FILE
from ...errors import Refused
from ...hosts import Host
from ...plan import Meeting, Plan, program_name
from . import parts

# Servers wait for workers more than they compute.
_RESOURCES = {"scheduler": {"cpu": "500m", "memory": "512Mi"}, "server": {"cpu": "1"}}


def _host(options, role):
    return f"{options.name}-{role}-0-0.{options.name}"


def _job(options, process, count):
    role = process.role
    env = dict(process.variables)
    env.pop("TORCHELASTIC_RESTART_COUNT", None)
    if "MASTER_ADDR" in env:  # torch.distributed listens there, whoever schedules
        env["MASTER_ADDR"] = _host(options, "worker")
    words = [parts.SECRET if word == SECRET_FILE else word for word in process.words]
    pod = parts.pod(options, role, parts.going_on(options, words), env,
                    **_RESOURCES.get(role, {}),
                    probe=parts.PORT if role == "scheduler" else None)
    return {"name": role, "replicas": 1, "template": {
        "spec": parts.indexed_job(count, role, 0, parts.template(options, pod))}}


def objects(options):
    if options.servers and program_name(options.program) == "telegrad-perf":
        raise Refused("-s: telegrad-perf has ranks and no roles; --kind job runs them")
    options.cluster = "kubernetes"
    hosts = [Host(f"worker-{rank}") for rank in range(options.workers or 1)]
    schedules = "scheduler" if options.servers else "worker"
    processes = Plan(options, hosts, False, {}).processes(
        Meeting(_host(options, schedules), parts.PORT, options.name))
    jobs = []
    for role in ("scheduler", "server", "worker"):
        its = [each for each in processes if each.role == role]
        jobs += [_job(options, its[0], len(its))] if its else []
    return [parts.network_policy(options), {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": parts.about(options),
        "spec": {"network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                 "successPolicy": {"operator": "All", "targetReplicatedJobs": [jobs[-1]["name"]]},
                 "failurePolicy": parts.set_failure_policy(options), "replicatedJobs": jobs}}]
