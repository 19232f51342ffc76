"""What a test has seen of the processes that it started, for tests/scenarios/run."""
import json
import os

FILE = os.environ.get("TELEGRAD_SEEN")


def note(code, said=""):
    """A process has ended with this code, and has said this; negative: by a signal."""
    if not FILE or code is None:
        return
    dead = []
    for line in said.splitlines():
        if '{"event":"fatal"' in line:
            try:
                dead += json.loads(line[line.index("{"):]).get("dead", [])
            except ValueError:
                pass  # another process has written into the line
    with open(FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps({"code": code, "dead": dead}) + "\n")
