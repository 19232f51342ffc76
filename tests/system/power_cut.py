"""What a disk may hold when the power fails: of a trace of system calls, at each moment.

Contents are there for certain behind fsync of their file, names behind fsync of their folder. Of
what came since, each part may be there or not, and the last write to a file may be torn.
"""
import os
import random
import re
import shutil

CALLS = ("openat,creat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,"
         "unlink,unlinkat,rmdir,ftruncate")
STRACE = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", "100000000", "-e",
          f"trace={CALLS}"]
SECTOR = 512
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"|<((?:\\x[0-9a-f]{2})*)>')


def whole_lines(text):
    """Calls that others interrupted are one line again, where they ended."""
    begun = {}
    for line in text.splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[pid] = call[:-len("<unfinished ...>")]
        elif call.startswith("<... "):
            yield begun.pop(pid) + call.split(" resumed>", 1)[1]
        else:
            yield call


def operations(trace, cwd, root):
    """(what, path, ...) of all that changed something below `root`, by processes in `cwd`."""
    with open(trace, encoding="ascii", errors="replace") as file:
        text = file.read()
    for call in whole_lines(text):
        name, _, rest = call.partition("(")
        result = re.search(r"\) += (-?\d+)", rest)
        if not result or int(result.group(1)) < 0:
            continue
        arguments = [(quoted is not None, bytes.fromhex((quoted or other or "").replace("\\x", "")))
                     for quoted, other in ((match.group(1), match.group(2))
                                           for match in TEXT.finditer(rest))]
        strings = [value for is_quoted, value in arguments if is_quoted]
        places = [value.decode(errors="replace") for is_quoted, value in arguments if not is_quoted]

        def path_of(index, folder=0):
            base = places[folder] if places and "at" in name else cwd
            return os.path.normpath(os.path.join(base, strings[index].decode()))

        if name in ("write", "pwrite64"):
            offset = int(re.search(r", (\d+)\) +=", rest).group(1)) if name == "pwrite64" else None
            operation = ("write", places[0], offset, strings[0][:int(result.group(1))])
        elif name in ("fsync", "fdatasync"):
            operation = ("sync", places[0])
        elif name == "ftruncate":
            operation = ("truncate", places[0], int(re.search(r", (\d+)\)", rest).group(1)))
        elif name in ("openat", "creat"):
            operation = ("create", path_of(0), "O_TRUNC" in rest) if "O_CREAT" in rest else None
        elif name.startswith("rename"):
            operation = ("rename", path_of(0), path_of(1, len(places) - 1))
        elif name.startswith("mkdir"):
            operation = ("mkdir", path_of(0))
        else:
            operation = ("remove", path_of(0))
        if operation and (operation[1] + "/").startswith(root + "/"):
            yield operation


class Node:
    """A file or a folder: what is certain of it, what holds now, and what lies between."""

    def __init__(self, is_folder):
        self.is_folder = is_folder
        self.certain = {} if is_folder else bytearray()
        self.now = {} if is_folder else bytearray()
        self.pending = []  # (number of the operation, change of one of these)

    def change(self, number, apply):
        apply(self.now)
        self.pending.append((number, apply))

    def sync(self):
        self.certain = type(self.now)(self.now)
        self.pending.clear()


def writing(offset, data):
    def apply(content):
        content.extend(bytes(max(0, offset - len(content))))
        content[offset:offset + len(data)] = data
    return apply


def naming(name, node):
    return lambda names: names.pop(name, None) if node is None else names.update({name: node})


class Disk:
    """One folder, in which operations are done one after the other."""

    def __init__(self, root):
        self.root, self.top, self.count = root, Node(True), 0

    def find(self, path):
        node = self.top
        for name in os.path.relpath(path, self.root).split("/"):
            node = node if name == "." else node and node.is_folder and node.now.get(name)
        return node or None

    def name(self, path, node):
        self.find(os.path.dirname(path)).change(self.count, naming(os.path.basename(path), node))

    def do(self, what, path, *more):
        self.count += 1
        node = self.find(path)
        if what in ("mkdir", "create") and node is None:
            self.name(path, Node(what == "mkdir"))
        elif what == "create" and more[0] or what == "truncate":
            node.change(self.count, lambda content: content.__delitem__(slice(more[-1] if what ==
                                    "truncate" else 0, None)))
        elif what == "remove":
            self.name(path, None)
        elif what == "rename":
            self.name(path, None)
            self.name(more[0], node)
        elif what == "write" and node is not None:
            offset = len(node.now) if more[0] is None else more[0]
            node.change(self.count, writing(offset, more[1]))
        elif what == "sync" and node is not None:
            node.sync()

    def after_a_cut(self, keeps):
        """path -> contents, None: a folder; `keeps` says it of an operation's number."""
        def content_of(node):
            content = type(node.certain)(node.certain)
            for i, (number, apply) in enumerate(node.pending):
                kept = keeps(number)
                if kept:
                    apply(content)
                    if not node.is_folder and i == len(node.pending) - 1 and kept == "torn":
                        del content[len(content) // 2 // SECTOR * SECTOR:]
            return content

        found = {}

        def look(node, path):
            content = content_of(node)
            found[path] = None if node.is_folder else bytes(content)
            for name, each in content.items() if node.is_folder else ():
                look(each, os.path.join(path, name))

        look(self.top, "")
        return found


def write(state, folder):
    """What is left, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in state.items():
        if content is None:
            os.makedirs(os.path.join(folder, path))
        else:
            with open(os.path.join(folder, path), "wb") as file:
                file.write(content)


def fates(seed, count=6):
    """What becomes of operations that are not certain, by their numbers."""
    yield lambda number: True
    yield lambda number: False
    for each in range(count):
        yield lambda number, each=each: random.Random(f"{seed} {each} {number}").choice(
            (True, False, "torn"))
