"""Objects of Kubernetes: a kind of job, what it needs beside it, and overlays.

deploy/kubernetes holds the same objects; tests/python/kubernetes_test.py writes and compares them.
"""
from ...errors import Refused
from ..yaml_text import documents
from . import job, jobset, mpijob, overlays, trainer

KINDS = {"job": job.objects, "jobset": jobset.objects, "mpijob": mpijob.objects,
         "trainer": trainer.objects}


def objects(options):
    made = KINDS[options.kind](options)
    for name in overlays.names(options.overlay):
        if name not in overlays.OVERLAYS:
            raise Refused(f"--overlay {name!r}: there are {', '.join(overlays.OVERLAYS)}")
        overlays.apply(name, made, options)
    return made


def text(options):
    return ("# The secret, once, before the job:\n"
            f"#   head -c 32 /dev/urandom | kubectl create secret generic {options.name} "
            "--from-file=secret=/dev/stdin\n" + documents(*objects(options)))
