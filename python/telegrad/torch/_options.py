"""The options of what `telegrad.torch` makes, for type checkers and for refusals."""
from __future__ import annotations

from typing import Any, Mapping, Optional, TypedDict, Union

from ..errors import UsageError


class JobOptions(TypedDict, total=False):
    """Of `telegrad.Job`, without what the process group says."""
    num_threads: int
    job_id: Optional[str]
    insecure: bool
    transport: str
    tls: Optional[str]
    bind: Optional[str]
    link: str
    join_timeout: Optional[float]
    dead_timeout: float
    operation_timeout: Optional[float]
    gdr: Optional[str]
    gpu: Optional[int]
    tier1: Optional[str]
    encryption: Optional[str]
    secret_file: Optional[str]
    metrics_port: Optional[int]
    metrics_file: Optional[str]
    flight_recorder: Optional[str]


class ServersOptions(JobOptions, total=False):
    """Of a job of a process group."""
    servers: Optional[int]


class DiLoCoOptions(ServersOptions, total=False):
    """The last of `telegrad.torch.DiLoCo`, with the process group."""
    group: Optional[Any]


class ReplicasOptions(ServersOptions, total=False):
    """Of `telegrad.torch.Replicas`."""
    rules: str
    threshold: Union[str, float]
    reply: str
    packing: str
    nonfinite: str
    min_bytes: int
    warmup_steps: int
    guard: bool
    allow: Optional[str]
    optimizer: Optional[Any]
    momentum: str
    momentum_rate: Optional[float]
    normalize: str
    elastic: bool


class StateOptions(ReplicasOptions, total=False):
    """Of `telegrad.torch.State`."""
    dense_1d: bool
    verbose: bool


def refuse_elastic(gc_type: str, job_options: Mapping[str, object]) -> None:
    """What cannot be beside ``elastic=True``."""
    if gc_type == "auto":
        raise UsageError("elastic=True with 'auto', which decides by times: name a codec")
    if job_options.get("tier1") in ("on", "group"):
        raise UsageError(f"elastic=True with tier1={job_options['tier1']!r}: one rank pushes "
                         "for several")
