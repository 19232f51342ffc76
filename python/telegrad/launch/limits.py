"""How many workers a job goes on with: MIN:MAX of --elastic and of $TELEGRAD_ELASTIC."""
from __future__ import annotations

import re
from typing import Optional, Tuple


def elastic(text: str) -> Optional[Tuple[int, int]]:
    """(MIN, MAX) of "2:4", (MIN, 0) of "2"; None: it is neither."""
    found = re.fullmatch(r"([1-9]\d{0,4})(?::([1-9]\d{0,4}))?", text)
    return (int(found[1]), int(found[2] or 0)) if found else None
