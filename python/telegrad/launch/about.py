"""The version: of the installed package, else of the sources around."""
from __future__ import annotations

import os
import re


def version() -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(folder, "VERSION"),
                 os.path.join(folder, "..", "..", "..", "CMakeLists.txt")):
        try:
            with open(path, encoding="utf-8") as file:
                found = re.search(r"(?:project\(telegrad VERSION |^)([0-9.]+)", file.read())
        except OSError:
            continue
        if found:
            return found.group(1)
    from importlib import metadata
    try:
        return metadata.version("telegrad")
    except metadata.PackageNotFoundError:
        return "unknown"
