"""Settings that the environment has where a call does not say them: docs/pytorch.md."""
from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

from .errors import AuthenticationError, UsageError
from .launch import limits


def tier_one(given: Optional[str], has_group: bool = False) -> str:
    """`given`, else $TELEGRAD_TIER1, else "auto".

    Raises:
        UsageError: "group" of what has no process group.
    """
    found = given or os.environ.get("TELEGRAD_TIER1") or "auto"
    if found == "group" and not has_group:
        raise UsageError("tier1 'group': ranks of a host sum by a process group of torch in "
                         "telegrad.torch.compress of a DistributedDataParallel and in DiLoCo; here "
                         "there are auto, on and off")
    return found


def elastic() -> Optional[Tuple[int, int]]:
    """(MIN, MAX) of $TELEGRAD_ELASTIC, "2:4" or "2", as telegrad-launch --elastic sets it; MAX 0:
    as many as begin. None: it is not set.

    Raises:
        UsageError: another text.
    """
    text = os.environ.get("TELEGRAD_ELASTIC")
    if not text:
        return None
    found = limits.elastic(text)
    if found is None:
        raise UsageError(f"TELEGRAD_ELASTIC={text!r}: MIN or MIN:MAX is wanted, numbers of "
                         "workers, such as 2:4")
    return found


def codec() -> Optional[str]:
    """Of $TELEGRAD_CODEC, if that is set."""
    return os.environ.get("TELEGRAD_CODEC") or None


def is_disabled() -> bool:
    """By $TELEGRAD_DISABLE.

    Raises:
        UsageError: another value than 0 and 1.
    """
    text = os.environ.get("TELEGRAD_DISABLE") or "0"
    if text not in ("0", "1"):
        raise UsageError(f"TELEGRAD_DISABLE={text!r}: 1 or 0")
    return text == "1"


def secret_of_file(given: Optional[str] = None) -> Optional[bytes]:
    """Of the `given` file, else of $TELEGRAD_SECRET_FILE; None: neither is there.

    Raises:
        AuthenticationError: a file that cannot be read, or that others can.
    """
    name = "secret_file" if given else "TELEGRAD_SECRET_FILE"
    path = given or os.environ.get("TELEGRAD_SECRET_FILE")
    if not path:
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                raise AuthenticationError(f"{name}={path}: another user can read it; "
                                          f"run: chmod 600 {path}")
            return file.read(4097)
    except OSError as why:
        raise AuthenticationError(f"{name}={path}: {why.strerror}") from why


def metrics_outlet(port: Optional[int], file: Optional[str]) -> Dict[str, Any]:
    """As options of C have it: what is given, else of $TELEGRAD_METRICS_PORT and _FILE.

    Raises:
        UsageError: no port.
    """
    text = os.environ.get("TELEGRAD_METRICS_PORT")
    found: Any = text if port is None else port
    found = None if found == "" else found  # whatever the environment has
    if found is not None and not (str(found).isdigit() and int(found) < 65536):
        raise UsageError(f"metrics_port={found!r}: a port is wanted, or 0 for any")
    if file is None:
        file = os.environ.get("TELEGRAD_METRICS_FILE")
        file = file and file.replace("%", str(os.getpid()))
    return {"metrics_port": 0 if found is None else int(found) or -1, "metrics_file": file or None}


def seconds(given: Optional[float], name: str, standard: float) -> float:
    """What is `given`, else of $TELEGRAD_`name`.

    Raises:
        UsageError: a variable that is no number of seconds.
    """
    if given is not None:
        return given
    variable = f"TELEGRAD_{name}"
    text = os.environ.get(variable)
    try:
        found = float(text) if text else standard
        if 0 < found < 1e9:
            return found
    except ValueError:
        pass
    raise UsageError(f"{variable}={text!r}: seconds are wanted, such as {standard:g}")
