"""Files to submit a job by: --print."""
from . import compose, grid_engine, kubernetes, slurm

FORMS = {"slurm": slurm.text, "sge": grid_engine.text, "kubernetes": kubernetes.text,
         "compose": compose.text}


def text(options):
    return FORMS[options.form](options)
