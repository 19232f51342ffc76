#!/usr/bin/env python3
"""Checks what a public header makes its users read.

    check_headers.py ROOT

Prints one line per header that brings too many of our headers, or one of a layer
that it must keep away from its users; exits 1 if there is any.
"""
import os
import re
import sys

# The header, how many of ours come with it (itself included), and layers none of
# whose headers may.
LIMITS = (
    ("kvstore/kvstore.h", 20, ("kernels", "topology")),
    ("kvstore/options.h", 5, ("kernels", "topology", "transport")),
    ("kvstore/job/path/worker_group.h", 5, ("topology",)),
    ("kvstore/job/path/job_options.h", 15, ("topology",)),
)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def headers_of(root, header):
    """Header -> the one by which it comes first, for all of ours."""
    found = {header: None}
    queue = [header]
    for path in queue:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for target in INCLUDE.findall(file.read()):
                if target not in found and os.path.isfile(os.path.join(root, target)):
                    found[target] = path
                    queue.append(target)
    return found


def way_to(found, header):
    """"kvstore.h > job.h > plan.h"."""
    way = []
    while header is not None:
        way.insert(0, header)
        header = found[header]
    return " > ".join(way)


def violations(root, limits=LIMITS):
    for header, most, strangers in limits:
        if not os.path.isfile(os.path.join(root, header)):
            yield f"{header}: does not exist; mend check_headers.py"
            continue
        found = headers_of(root, header)
        if len(found) > most:
            yield (f"{header}: brings {len(found)} headers, more than {most}: "
                   + " ".join(sorted(found)))
        for each in sorted(found):
            if each.split("/")[0] in strangers:
                yield f"{header}: brings a layer's insides: {way_to(found, each)}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = sys.argv[1]
    wrong = list(violations(root))
    for line in wrong:
        print(line)
    for header, most, _ in LIMITS:
        if os.path.isfile(os.path.join(root, header)):
            print(f"{header}: {len(headers_of(root, header))} of {most} headers")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
