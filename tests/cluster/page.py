"""What a page of docs/deploy tells its readers to type."""

import os
import re

from cluster_case import ROOT


def blocks(page, heading):
    """(file or None, text) of each block of a section, in order.

    A block that the words "As `FILE`:" end before is that file; others are commands.
    """
    with open(f"{ROOT}/docs/deploy/{page}.md") as file:
        section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", file.read(),
                            re.MULTILINE | re.DOTALL)[1]
    for before, block in re.findall(r"([^\n]*)\n\n((?:    [^\n]*\n)+)", section):
        name = re.search(r"[aA]s `(\S+)`:$", before)
        yield name and name[1], re.sub("^    ", "", block, flags=re.MULTILINE)


def follow(case, page, heading, change=lambda text: text):
    """Writes its files, changed, into the folder of a test; returns its commands, a text each."""
    commands = []
    for name, text in blocks(page, heading):
        if name:
            with open(f"{case.folder}/{name}", "w") as file:
                file.write(change(text))
            os.chmod(f"{case.folder}/{name}", 0o755)
        else:
            commands.append(text)
    return commands
