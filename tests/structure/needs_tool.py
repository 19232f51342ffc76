"""How a check ends that needs a tool of Debian's."""
import os
import shutil
import sys

SKIPPED = 77


def end(tool, find, fine):
    """Exits with what `find()` complains of, or 0 and `fine`; 77 (skipped) without the tool, or 1
    when CI=true."""
    if shutil.which(tool) is None:
        print(f"skipped: {tool} is not installed")
        sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)
    complaints = find()
    print(complaints or fine)
    sys.exit(1 if complaints else 0)
