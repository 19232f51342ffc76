"""What this process's jobs count, by the names of docs/numbers.md."""
from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Optional

from .errors import UsageError
from .job import open_jobs
from .launch.exposition import Sample, samples_of

def metrics() -> Dict[str, List[Sample]]:
    """What the open jobs of this process have counted so far, by name: what Prometheus reads
    at their `metrics_port`. At any time, also where there is no port::

        for labels, value in telegrad.metrics()["telegrad_push_wire_bytes_total"]:
            print(labels["rank"], labels["codec"], value)
    """
    found: Dict[str, List[Sample]] = {}
    for job in open_jobs():
        for name, samples in samples_of(job.metrics_text()).items():
            found.setdefault(name, []).extend(samples)
    return found


_FAMILY = re.compile(r"# TYPE (\w+) (\w+)\n")
_HELP = re.compile(r"# HELP (\w+) (.*)\n")


def export_to_opentelemetry(meter: Optional[Any] = None) -> List[Any]:
    """Makes observable instruments of OpenTelemetry, one of each counter and gauge that open
    jobs have by now, which read `metrics` when its reader asks.

    Args:
        meter: None: ``opentelemetry.metrics.get_meter("telegrad")``.

    Returns:
        The instruments.

    Raises:
        UsageError: the package opentelemetry-api is not installed, or no job is open.
    """
    try:
        from opentelemetry import metrics as otel  # type: ignore[import-not-found]
    except ImportError:
        raise UsageError("opentelemetry is not installed: pip install opentelemetry-sdk") from None
    text = "".join(job.metrics_text() for job in open_jobs())
    if not text:
        raise UsageError("no job is open, so that nothing is counted")
    meter = otel.get_meter("telegrad") if meter is None else meter
    helps = dict(_HELP.findall(text))

    def instrument(name: str, kind: str) -> Any:
        def read(_: Any) -> Iterable[Any]:
            return [otel.Observation(value, labels)
                    for labels, value in metrics().get(name, [])]
        make = (meter.create_observable_counter if kind == "counter"
                else meter.create_observable_gauge)
        return make(name, callbacks=[read], description=helps[name])

    return [instrument(name, kind) for name, kind in dict(_FAMILY.findall(text)).items()
            if kind != "histogram"]
