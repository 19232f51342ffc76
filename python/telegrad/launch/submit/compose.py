"""For docker compose and podman-compose: a container for each process, on one network."""
from ..agent_words import SECRET_FILE
from ..hosts import Host
from ..plan import Meeting, Plan
from .yaml_text import documents

_SECRET = "/run/secrets/telegrad"
_PORT = 29500


def _name(process):
    return process.name.replace(" ", "-")


def text(options):
    count = options.workers or 1
    plan = Plan(options, [Host(f"worker-{rank}") for rank in range(count)], False, {})
    processes = plan.processes(Meeting("scheduler" if options.servers else "worker-0", _PORT,
                                       options.name))
    services = {}
    for each in processes:
        words = [_SECRET if word == SECRET_FILE else word for word in each.words]
        variables = {name: _SECRET if value == SECRET_FILE else value
                     for name, value in each.variables.items() if name != "LOCAL_WORLD_SIZE"}
        services[_name(each)] = {
            "image": options.image, "user": "${TELEGRAD_USER:-1000:1000}", "command": words,
            "environment": variables, "secrets": ["telegrad"], "shm_size": "1gb",
            "stop_grace_period": "10s", "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"]}
    return ("# head -c 32 /dev/urandom > secret && chmod 600 secret\n"
            "# TELEGRAD_USER=$(id -u):$(id -g) docker compose -f FILE up --abort-on-container-exit"
            "\n" + documents({"name": options.name, "services": services,
                              "secrets": {"telegrad": {"file": "./secret"}}}))
