"""A Job of Kubernetes: what --print kubernetes writes is handed to kubectl."""
import json
import os
import subprocess
from binascii import b2a_base64


def prepare(options, environ):
    from ..options import need_tool
    need_tool("kubectl", "--print kubernetes writes a file to apply elsewhere")


def start(options):
    """The exit code of kubectl; the cluster runs the job."""
    from ..submit import kubernetes
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
              "metadata": {"name": options.name},
              "data": {"secret": b2a_base64(os.urandom(32), newline=False).decode()}}
    text = kubernetes.text(options) + "---\n" + json.dumps(secret) + "\n"
    done = subprocess.run(["kubectl", "apply", "-f", "-"], input=text.encode(), check=False)
    if done.returncode == 0:
        print(f"kubectl logs -f --max-log-requests 100 -l batch.kubernetes.io/job-name="
              f"{options.name} --prefix\nkubectl wait --for=condition=complete --timeout=-1s "
              f"job/{options.name}")
    return done.returncode
