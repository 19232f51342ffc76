"""Also as `python3 FOLDER`, which does not load the package around it."""
import importlib.util
import os
import sys


def _load():
    """This folder as a package of its own: nothing else of telegrad is needed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "telegrad_launch", os.path.join(folder, "__init__.py"),
        submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules["telegrad_launch"] = module
    spec.loader.exec_module(module)
    return importlib.import_module("telegrad_launch.main")


if __package__:
    from .main import main
else:
    main = _load().main
sys.exit(main())
