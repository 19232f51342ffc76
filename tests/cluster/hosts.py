"""Emulated hosts, n1 and n2 unless more are wanted, in namespaces of their own.

Importing it starts the program again in new mount, process, network and name
namespaces. What runs in there ends with it, and nothing of the real host is
changed: the addresses are those of a bridge inside, and /etc/hosts, /run,
/dev/shm and the folder of temporary files are private.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

INSIDE = "TELEGRAD_CLUSTER_INSIDE"
WITH_ITS_PARENT = ["setpriv", "--pdeathsig", "KILL"]
DAEMONS = {}  # name -> process that sees the files of that host
NAMES = ["n1", "n2"]
NETWORK = "10.77.0.0/24"
TEMPORARY = "/run/tmp"  # not /tmp, where the programs may be
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc",
              "--fork", "--kill-child", "--mount-proc"]


def skip(reason, required=False):
    if required and os.environ.get("CI") == "true":
        sys.exit(f"needed here: {reason}")
    print(f"skipped: {reason}")
    sys.exit(77)


def enter(tools, required=False, count=2):
    """Goes on in namespaces, or leaves as skipped and says why."""
    NAMES[:] = [f"n{i + 1}" for i in range(count)]
    if INSIDE in os.environ:
        make_hosts()
        return
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for tool in ("unshare", "nsenter", "ip", *tools):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed", required)
    if os.geteuid() != 0:
        skip("only root makes hosts of namespaces", required)
    trial = subprocess.run([*NAMESPACES, "ip", "link", "add", "br0", "type",
                            "bridge"], capture_output=True, text=True)
    if trial.returncode != 0:
        skip(f"no namespaces here: {trial.stderr.strip()}", required)
    # Killed by whoever waits for the test, all inside must end, too.
    sys.exit(subprocess.run([*WITH_ITS_PARENT, *NAMESPACES, sys.executable, "-B", *sys.argv],
                            env={**os.environ, INSIDE: "1"}).returncode)


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def address(name):
    return f"10.77.0.{1 + NAMES.index(name)}"


def make_hosts():
    run("mount", "--make-rprivate", "/")
    for folder in ("/run", "/dev/shm"):
        run("mount", "-t", "tmpfs", "tmpfs", folder)
    os.makedirs("/run/netns")
    os.makedirs("/run/sshd", mode=0o755)
    os.makedirs(TEMPORARY)
    os.chmod(TEMPORARY, 0o1777)
    os.environ["TMPDIR"] = TEMPORARY
    with open("/run/hosts", "w") as file:
        file.write("127.0.0.1 localhost\n10.77.0.254 head\n")
        for name in NAMES:
            file.write(f"{address(name)} {name}\n")
    run("mount", "--bind", "/run/hosts", "/etc/hosts")
    run("hostname", "head")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", "10.77.0.254/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    for name in NAMES:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", f"v{name}", "type", "veth", "peer", "name",
            "eth0", "netns", name)
        run("ip", "link", "set", f"v{name}", "master", "br0", "up")
        run("ip", "-n", name, "addr", "add", f"{address(name)}/24", "dev",
            "eth0")
        for device in ("eth0", "lo"):
            run("ip", "-n", name, "link", "set", device, "up")


def start_on(name, command, log):
    """A daemon of that host; its own name, shared memory and /run/own."""
    os.makedirs("/run/own", exist_ok=True)
    script = (f"hostname {name}; for each in /dev/shm /run/own; do mount -t tmpfs tmpfs $each;"
              f" done; exec {command}")
    with open(log, "wb") as file:
        DAEMONS[name] = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts",
             "--mount", "--ipc", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def listeners():
    """(host, address, program, port) of each socket of our programs that waits for others."""
    found = []
    for name in ["head", *NAMES]:
        enter_it = [] if name == "head" else ["nsenter", f"--net=/run/netns/{name}"]
        text = subprocess.run([*enter_it, "ss", "-Hltunp"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        for line in text.splitlines():
            fields = line.split()
            if '(("telegrad' in line:
                address, _, port = fields[4].rpartition(":")
                found.append((name, address.strip("[]"), fields[6], int(port)))
    return found


def shared_memory():
    """What is in /dev/shm, here and on each host."""
    return [f"{name or 'head'}:{path}" for name, root in
            [("", ""), *((name, f"/proc/{each.pid}/root") for name, each in DAEMONS.items())]
            for path in os.listdir(f"{root}/dev/shm")]


def namespaces():
    """Those that a process here is in."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("ipc", "mnt", "net", "pid", "uts"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass  # it has ended
    return found


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def start_sshd(folder):
    """Returns the path of a configuration for ssh that reaches all hosts."""
    for key in ("host_key", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
            f"{folder}/{key}")
    with open(f"{folder}/host_key.pub") as file:
        host_key = file.read()
    with open(f"{folder}/known", "w") as file:
        for name in NAMES:
            file.write(f"{name} {host_key}")
    with open(f"{folder}/ssh_config", "w") as file:
        file.write(f"Host n*\n IdentityFile {folder}/key\n"
                   f" UserKnownHostsFile {folder}/known\n LogLevel ERROR\n"
                   " BatchMode yes\n ConnectTimeout 10\n")
    for name in NAMES:
        start_on(name, f"{shutil.which('sshd')} -D -e -f /dev/null"
                 f" -h {folder}/host_key -o ListenAddress={address(name)}"
                 " -o UsePAM=no -o StrictModes=no -o PidFile=none"
                 " -o PermitRootLogin=yes -o AcceptEnv=*"
                 f" -o 'SetEnv=PATH=/run/bin:/usr/local/bin:/usr/bin:/bin TMPDIR={TEMPORARY}'"
                 f" -o AuthorizedKeysFile={folder}/key.pub",
                 f"{folder}/sshd-{name}.log")
    for name in NAMES:
        wait_until(lambda: subprocess.run(
            ["ssh", "-F", f"{folder}/ssh_config", name, "true"],
            capture_output=True).returncode == 0, 20, f"sshd on {name}")
    return f"{folder}/ssh_config"


def use_ssh():
    """ssh and mpirun reach all hosts; root's own files stay as they are. Returns the folder."""
    folder = private_folder()
    configuration = start_sshd(folder)
    os.makedirs(f"{folder}/bin")
    with open(f"{folder}/bin/ssh", "w") as file:  # no variable names another configuration
        file.write(f"#!/bin/sh\nexec {shutil.which('ssh')} -F {configuration} \"$@\"\n")
    os.chmod(f"{folder}/bin/ssh", 0o755)
    os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
    os.environ.update(OMPI_MCA_oob_tcp_if_include=NETWORK, OMPI_MCA_btl="self",
                      OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return folder


def private_folder():
    return tempfile.mkdtemp(prefix="telegrad-cluster-", dir="/run")
