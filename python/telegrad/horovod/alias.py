"""Horovod's names for these modules."""
from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Mapping, Optional

from .common import settings

_NAME = "horovod"
# The same modules, where Horovod has them elsewhere.
_MOVED = {"horovod.common.basics": "telegrad.horovod.common.world"}


class _Loader(Loader):
    def __init__(self, name: str) -> None:
        self._name = name
        self._own: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # by which its own imports are found


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None,
                  target: Any = None) -> Optional[ModuleSpec]:
        if fullname.partition(".")[0] != _NAME:
            return None
        name = _MOVED.get(fullname, f"telegrad.{fullname}")
        try:
            if importlib.util.find_spec(name) is None:
                return None
        except ModuleNotFoundError:
            return None
        return ModuleSpec(fullname, _Loader(name), is_package=True)


def install(options: Optional[Mapping[str, Any]] = None) -> None:
    """From now on ``import horovod...`` of this process gives these modules, whether Horovod
    is installed or not.

    Args:
        options: of `telegrad.run`, by their names there.
    """
    for name, value in (options or {}).items():
        if name in settings.JOB_OPTIONS:
            settings.job[name] = value
        elif name in settings.CODEC_OPTIONS:
            settings.codec[settings.CODEC_OPTIONS[name]] = value
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
