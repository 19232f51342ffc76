"""An MPIJob (kubeflow.org/v2beta1): mpirun in one Pod reaches the others by ssh.

The image needs openmpi and openssh; the operator makes the job's keys.
"""
from ...errors import Refused
from ...options import has_flag
from ...plan import TELEGRAD, program_name
from . import parts

_SSH_PORT = 2222
_KEYS = "/home/telegrad/.ssh"
# The hosts' keys are the job's own, made with it; nobody else's Pods get in.
_RSH = (f"-p {_SSH_PORT} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "-o ConnectionAttempts=10")
_SSHD = ["/usr/sbin/sshd", "-De", "-f", "/dev/null", "-p", str(_SSH_PORT),
         "-o", "UsePAM=no", "-o", "StrictModes=no", "-o", "PidFile=none",
         "-o", f"HostKey={_KEYS}/id_rsa", "-o", f"AuthorizedKeysFile={_KEYS}/authorized_keys"]


def _words(options, env):
    words = list(options.program)
    if options.servers and not has_flag(words, "--servers"):
        words += ["--servers", str(options.servers)]
    if program_name(words) in TELEGRAD:
        words += ["--bind", options.bind, "--secret-file", parts.SECRET]
    exported = [word for name, value in env.items() for word in ("-x", f"{name}={value}")]
    return ["mpirun", "-n", str((options.workers or 1) + options.servers), "--mca",
            "plm_rsh_args", _RSH, "--mca", "orte_keep_fqdn_hostnames", "1", *exported,
            *parts.going_on(options, words)]


def objects(options):
    if options.servers and program_name(options.program) not in TELEGRAD:
        raise Refused("-s: ranks of an MPIJob run one program, and only Telegrad's take the "
                      "last ranks as servers; --kind jobset has roles")
    world = (options.workers or 1) + options.servers
    env = {"TELEGRAD_SECRET_FILE": parts.SECRET, "TELEGRAD_BIND": options.bind,
           **parts.ours(options, options.env_worker)}
    worker = parts.pod(options, "worker", _SSHD, {}, ports=(("ssh", _SSH_PORT),),
                       probe=_SSH_PORT)
    launcher = parts.pod(options, "launcher", _words(options, env), {}, ports=(), cpu="500m",
                         memory="512Mi", has_secret=False)
    return [parts.network_policy(options), {
        "apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": parts.about(options),
        "spec": {"slotsPerWorker": 1, "sshAuthMountPath": _KEYS,
                 "launcherCreationPolicy": "WaitForWorkersReady",
                 "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": options.restart},
                 "mpiReplicaSpecs": {
                     "Launcher": {"replicas": 1, "restartPolicy": "Never",
                                  "template": parts.template(options, launcher)},
                     "Worker": {"replicas": world, "restartPolicy": "Never",
                                "template": parts.template(options, worker)}}}}]
