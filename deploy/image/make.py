#!/usr/bin/env python3
"""Makes an image from Debian's packages and programs that are built: ./telegrad image calls it.

    make.py runtime|trainer|python BUILD OUT [--programs]

BUILD is a build folder (preset package). OUT gets telegrad-KIND.tar, an archive of OCI, and the
list of what is inside. Needs root, buildah and apt; no daemon, no image from elsewhere. The same
packages and programs give the same layers: times are that of the commit (SOURCE_DATE_EPOCH). With
--programs Telegrad's own files come into OUT/KIND/own, for the Containerfile, which needs none of
that.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = {
    "runtime": ("kvstore/telegrad-server", "perf/telegrad-perf", "topology/telegrad-topo"),
    "python": ("kvstore/telegrad-server", "perf/telegrad-perf", "topology/telegrad-topo"),
    "trainer": ("kvstore/telegrad-server", "perf/telegrad-perf", "topology/telegrad-topo",
                "trainer/telegrad-train"),
}
LISTS = {"runtime": ("runtime",), "trainer": ("runtime", "torch", "trainer"),
         "python": ("runtime", "torch", "python")}
MEGABYTES = {"runtime": 120, "trainer": 900}  # at most, unpacked
UID = 1000
# What no program reads. Licences stay.
LEFT_OUT = ("./usr/share/man", "./usr/share/locale", "./usr/share/lintian", "./usr/share/bug",
            "./usr/share/info", "./usr/lib/*/gconv", "./usr/lib/systemd", "./lib/systemd",
            "./usr/share/doc/*/[!c]*", "./usr/share/doc/*/changelog*", "./usr/include")
APPLETS = ("cat", "cp", "df", "env", "grep", "head", "hostname", "id", "install", "ls", "mkdir",
           "mv", "nc", "nslookup", "ps", "rm", "sed", "sleep", "tail", "test", "top", "tr", "wc")


def run(*words, **more):
    return subprocess.run(words, check=True, **more)


def output(*words, **more):
    return run(*words, stdout=subprocess.PIPE, **more).stdout.decode()


def read_packages(kind):
    """Wanted, and left out; what a further list wants is in."""
    words = []
    for name in LISTS[kind]:
        with open(os.path.join(HERE, f"{name}.packages"), encoding="utf-8") as file:
            words += [word for line in file if not line.startswith("#") for word in line.split()]
    wanted = [word for word in words if not word.startswith("-")]
    return wanted, {word[1:] for word in words if word.startswith("-")} - set(wanted)


def download(kind, folder):
    """(name, version, file) of the packages of the image, as if nothing were installed."""
    wanted, left_out = read_packages(kind)
    os.makedirs(os.path.join(folder, "partial"), exist_ok=True)
    status = os.path.join(folder, "status")
    open(status, "w", encoding="utf-8").close()
    apt = ["apt-get", "-y", "--no-install-recommends", "-o", f"Dir::State::status={status}",
           "-o", f"Dir::Cache::archives={folder}", "-o", "APT::Sandbox::User=root",
           "-o", "Debug::NoLocking=1"]
    run(*apt, "-qq", "-d", "install", *wanted, stdout=subprocess.DEVNULL)
    found = re.findall(r"^Inst (\S+) \((\S+) .*\[(\w+)\]\)",
                       output(*apt, "-s", "install", *wanted), re.MULTILINE)
    return [(name, version, os.path.join(
                folder, f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"))
            for name, version, architecture in sorted(found) if name not in left_out]


def unpack(packages, tree):
    """Files alone: what their scripts would do beside is in finish()."""
    for name in ("bin", "sbin", "lib", "lib64"):
        os.makedirs(os.path.join(tree, "usr", name), exist_ok=True)
        os.symlink(f"usr/{name}", os.path.join(tree, name))
    exclude = [f"--exclude={path}" for path in LEFT_OUT]
    for _, _, file in packages:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file],
                              stdout=subprocess.PIPE) as reader:
            run("tar", "-x", "-C", tree, "--keep-directory-symlink", "--wildcards", *exclude,
                stdin=reader.stdout)
        if reader.returncode != 0:
            raise SystemExit(f"image: {file} cannot be read")


def link(tree, path, target):
    whole = os.path.join(tree, path)
    if not os.path.lexists(whole):
        os.symlink(target, whole)


def write(tree, path, text):
    whole = os.path.join(tree, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "w", encoding="utf-8") as file:
        file.write(text)


def library_folder():
    return f"usr/lib/{os.uname().machine}-linux-gnu"


def links(tree):
    """Those that scripts of packages make elsewhere; the folder of libraries."""
    link(tree, "usr/bin/sh", "dash")
    for applet in APPLETS:
        link(tree, f"usr/bin/{applet}", "busybox")
    libraries = library_folder()
    for name in ("libblas.so.3", "liblapack.so.3"):
        if os.path.exists(os.path.join(tree, libraries, "openblas-pthread", name)):
            link(tree, f"{libraries}/{name}", f"openblas-pthread/{name}")
    for name in ("mpirun", "mpiexec", "orted"):
        if os.path.exists(os.path.join(tree, f"usr/bin/{name}.openmpi")):
            link(tree, f"usr/bin/{name}", f"{name}.openmpi")
    return libraries


def finish(tree):
    """Users, links and the linker's cache."""
    libraries = links(tree)
    write(tree, "etc/passwd", "root:x:0:0:root:/:/bin/sh\n"
          f"telegrad:x:{UID}:{UID}:Telegrad:/home/telegrad:/bin/sh\n")
    write(tree, "etc/group", f"root:x:0:\ntelegrad:x:{UID}:\n")
    write(tree, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    write(tree, "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    write(tree, "etc/ld.so.conf.d/debian.conf", f"/{libraries}\n/{libraries}/openblas-pthread\n")
    for path, mode in (("tmp", 0o1777), ("var/tmp", 0o1777), ("proc", 0o755), ("sys", 0o755),
                       ("dev", 0o755), ("run/telegrad", 0o700), ("home/telegrad", 0o755)):
        whole = os.path.join(tree, path)
        os.makedirs(whole, exist_ok=True)
        os.chmod(whole, mode)
    for path in ("run/telegrad", "home/telegrad"):
        os.chown(os.path.join(tree, path), UID, UID)
    run("/sbin/ldconfig", "-r", tree)
    shutil.rmtree(os.path.join(tree, "var/cache/ldconfig"), ignore_errors=True)


def add_telegrad(kind, build, tree):
    version = re.search(r"project\(telegrad VERSION ([0-9.]+)", open(
        os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8").read()).group(1)
    for path in PROGRAMS[kind]:
        to = os.path.join(tree, "usr/bin", os.path.basename(path))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        run("strip", "-o", to, os.path.join(build, path))
        os.chmod(to, 0o755)
    shutil.copy(os.path.join(ROOT, "python/telegrad-launch"), os.path.join(tree, "usr/bin"))
    ignore = shutil.ignore_patterns("__pycache__")
    shared = os.path.join(tree, "usr/share/telegrad/launch")
    shutil.copytree(os.path.join(ROOT, "python/telegrad/launch"), shared, ignore=ignore)
    write(tree, "usr/share/telegrad/launch/VERSION", version)
    os.makedirs(os.path.join(tree, "usr/share/doc/telegrad"))
    shutil.copy(os.path.join(ROOT, "LICENSE"), os.path.join(tree, "usr/share/doc/telegrad"))
    if kind == "trainer":  # which the trainer opens with the first network
        to = os.path.join(tree, "usr/lib")
        os.makedirs(to)
        run("strip", "-o", os.path.join(to, "libtelegrad-networks.so"),
            os.path.join(build, "trainer/libtelegrad-networks.so"))
    if kind == "python":
        to = os.path.join(tree, "usr/lib/python3/dist-packages/telegrad")
        shutil.copytree(os.path.join(ROOT, "python/telegrad"), to, ignore=ignore)
        run("strip", "-o", os.path.join(to, "libtelegrad.so"),
            os.path.join(build, "python/libtelegrad.so"))
    for folder, names, files in os.walk(tree):  # whatever the umask was
        for name in names + files:
            whole = os.path.join(folder, name)
            if not os.path.islink(whole):
                os.chmod(whole, 0o755 if os.path.isdir(whole) or os.access(whole, os.X_OK)
                         else 0o644)
    return version


def contents(kind, version, packages, when):
    """SPDX 2.3: what is inside, for those who look for versions with defects."""
    def entry(name, its, licence, locator):
        return {"SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', name)}", "name": name,
                "versionInfo": its, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
                "licenseConcluded": licence, "licenseDeclared": licence,
                "copyrightText": "NOASSERTION", "externalRefs": [
                    {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                     "referenceLocator": locator}]}

    entries = [entry("telegrad", version, "Apache-2.0", f"pkg:generic/telegrad@{version}")]
    entries += [entry(name, its, "NOASSERTION", f"pkg:deb/debian/{name}@"
                      f"{urllib.parse.quote(its, safe='')}?distro=debian-12")
                for name, its, _ in packages]
    name = f"telegrad-{kind}-{version}"
    digest = hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": name, "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{digest}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
                         "creators": ["Tool: telegrad-image"]},
        "packages": entries,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": each["SPDXID"]} for each in entries],
    }, indent=1) + "\n"


class Buildah:
    """Images in a storage of their own."""

    def __init__(self, folder):
        self._words = ["buildah", "--root", f"{folder}/storage", "--runroot", f"{folder}/run",
                       "--storage-driver", "vfs"]

    def __call__(self, *words):
        return output(*self._words, *words).strip()

    def layer(self, base, tree, name, when, settings=()):
        """An image: `base` and one layer more, with the files of `tree`."""
        container = self("from", "--pull-never", base)
        place = self("mount", container)
        run("cp", "-a", f"{tree}/.", place)
        self("unmount", container)
        if settings:
            self("config", *settings, container)
        self("commit", "--timestamp", str(when), "--rm", "--quiet", container, name)


def settings_of(kind, version, when):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=False).stdout.decode().strip()
    labels = {"title": f"Telegrad, {kind}", "version": version, "revision": commit,
              "licenses": "Apache-2.0",
              "description": "Communication middleware that makes gradients small",
              "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))}
    made = ["--user", f"{UID}:{UID}", "--workingdir", "/home/telegrad",
            "--env", "PATH=/usr/bin:/usr/sbin", "--env", "HOME=/home/telegrad",
            "--cmd", {"trainer": "telegrad-train --help"}.get(kind, "telegrad-server --help")]
    for name, value in labels.items():
        made += ["--label", f"org.opencontainers.image.{name}={value}"]
    return made


def tree_bytes(tree):
    seen = {}
    for folder, _, files in os.walk(tree):
        for name in files:
            its = os.lstat(os.path.join(folder, name))
            seen[its.st_ino] = its.st_size
    return sum(seen.values())


_LIBRARIES_ARE_THERE = """for each in /usr/bin/* /usr/sbin/* /usr/lib/*.so; do
  if /lib64/ld-*.so.* --list $each 2>/dev/null | grep "not found"; then echo $each; exit 1; fi
done"""


def check(buildah, name, kind):
    """As a container's user: each program starts, and no library is missing."""
    container = buildah("from", "--pull-never", name)
    commands = [[os.path.basename(path), "--version"]
                for path in (*PROGRAMS[kind], "telegrad-launch")]
    commands.append(["sh", "-c", _LIBRARIES_ARE_THERE])
    if kind == "python":
        commands.append(["python3", "-c", "import torch, telegrad.torch"])
    if kind == "trainer":
        commands.append(["telegrad-train", "--network", "mlp", "--num-batches", "2",
                         "--num-epochs", "1"])
    for command in commands:
        words = ("run", "--isolation", "chroot", container, "--", *command)
        try:
            buildah(*words)
        except subprocess.CalledProcessError:  # buildah may fail to start by itself, EBUSY
            buildah(*words)
    buildah("rm", container)


def make(kind, build, out, programs_alone):
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or output(
        "git", "-C", ROOT, "log", "-1", "--format=%ct"))
    work = os.path.join(out, kind)
    shutil.rmtree(work, ignore_errors=True)
    base, own = os.path.join(work, "base"), os.path.join(work, "own")
    os.umask(0o022)
    os.makedirs(base)
    os.makedirs(own)
    if programs_alone:
        add_telegrad(kind, build, own)
        return
    packages = download(kind, os.path.join(out, "packages"))
    unpack(packages, base)
    finish(base)
    version = add_telegrad(kind, build, own)
    text = contents(kind, version, packages, when)
    write(own, "usr/share/doc/telegrad/contents.spdx.json", text)
    buildah, name = Buildah(out), f"localhost/telegrad-{kind}:{version}"
    buildah.layer("scratch", base, f"{name}-base", when)
    buildah.layer(f"{name}-base", own, name, when, settings_of(kind, version, when))
    check(buildah, name, kind)
    archive = os.path.join(out, f"telegrad-{kind}.tar")
    if os.path.exists(archive):
        os.remove(archive)
    buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
    write(out, f"telegrad-{kind}.spdx.json", text)
    layers = json.loads(buildah("inspect", "--type", "image", name))["OCIv1"]["rootfs"]["diff_ids"]
    size = (tree_bytes(base) + tree_bytes(own)) / 1e6
    print(json.dumps({"image": name, "packages": len(packages), "unpacked_mb": round(size, 1),
                      "archive": archive, "archive_mb": round(os.path.getsize(archive) / 1e6, 1),
                      "layers": layers}))
    if size > MEGABYTES.get(kind, size):
        raise SystemExit(f"image: {kind} has {size:.0f} MB, more than {MEGABYTES[kind]}")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in PROGRAMS or \
            sys.argv[4:] not in ([], ["--programs"]):
        sys.exit(__doc__)
    make(sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]), sys.argv[4:])
