"""An Indexed Job with a headless Service, which need no operator: a Pod for each rank."""
from ...errors import Refused
from ...options import has_flag
from ...plan import TELEGRAD, program_name
from . import parts


def _words(options):
    words = list(options.program)
    if program_name(words) not in TELEGRAD:
        if options.servers:
            raise Refused("-s: ranks of a Job of Kubernetes run one program, and only "
                          "Telegrad's take the last ranks as servers; --kind jobset has roles")
        return words
    if options.servers and not has_flag(words, "--servers"):
        words += ["--servers", str(options.servers)]
    return parts.going_on(options, [*words, "--bind", options.bind,
                                    "--secret-file", parts.SECRET])


def objects(options):
    world = (options.workers or 1) + options.servers
    env = {"RANK": "", "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
           "MASTER_ADDR": f"{options.name}-0.{options.name}", "MASTER_PORT": str(parts.PORT),
           "TELEGRAD_SECRET_FILE": parts.SECRET, "TELEGRAD_BIND": options.bind,
           **parts.ours(options, options.env_worker)}
    pod = parts.pod(options, "rank", _words(options), env, subdomain=options.name)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": parts.about(options),
           "spec": parts.indexed_job(world, "rank", options.restart * world,
                                     parts.template(options, pod))}
    return [parts.service(options), parts.network_policy(options), job]
