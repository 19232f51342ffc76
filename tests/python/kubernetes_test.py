"""deploy/kubernetes: what telegrad-launch prints, and what the schemas of Kubernetes allow.

TELEGRAD_RECORD=1 writes the folder. The schemas of core kinds are kubernetes-validate's, which
./telegrad test takes from PyPI; those of JobSet, MPIJob, TrainJob and ClusterTrainingRuntime are
files of their projects in the folder TELEGRAD_KUBERNETES_FIXTURES. What is missing is skipped.
"""
import copy
import glob
import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDER = os.path.join(ROOT, "deploy", "kubernetes")
sys.path.append(os.path.join(ROOT, "python", "telegrad"))  # last: it has a numbers.py
sys.path.append(os.path.join(ROOT, "build", "kubernetes-validate"))
options = importlib.import_module("launch.options")
kubernetes = importlib.import_module("launch.submit.kubernetes")
from launch.errors import Refused  # noqa: E402
from launch.submit.yaml_text import documents  # noqa: E402

VERSIONS = ("1.31", "1.37")  # the oldest and the newest that are supported
# Four Pods each, so that one PodGroup suits all.
COMMANDS = {
    "job": "-n 4 -- telegrad-train --gc-type int2",
    "jobset": "-n 2 -s 1 --server-program telegrad-server -- telegrad-train --gc-type int2",
    "mpijob": "-n 4 -- telegrad-train --gc-type int2",
    "trainer": "-n 4 -- torchrun -m telegrad.run --gc-type int2 train.py",
}
OVERLAYS = tuple(kubernetes.overlays.OVERLAYS)
EXAMPLES = {"jobset-gpu-rdma-kueue": ("jobset", "gpu,rdma,kueue")}
FREE = ("labels", "annotations", "matchLabels", "limits", "requests",
        "mpiReplicaSpecs")  # mappings of any names


def parsed(kind, overlay="", more=""):
    image = "telegrad-python" if kind == "trainer" else "telegrad-trainer"
    return options.parse(shlex.split(
        f"--print kubernetes --kind {kind} --image {image} --restart 3 "
        + (f"--overlay {overlay} " if overlay else "") + more + COMMANDS[kind]))


def objects(kind, overlay=""):
    return kubernetes.objects(parsed(kind, overlay))


def component(name):
    """kustomization.yaml of an overlay: a patch for each kind that it changes."""
    patches = []
    for kind in COMMANDS:
        for thing in objects(kind):
            steps = [{"op": "add", "path": path, "value": value}
                     for path, value in kubernetes.overlays.steps(name, thing)]
            if steps:
                patches.append(f"- target:\n    kind: {thing['kind']}\n  patch: |-\n"
                               + "".join(f"    {line}\n" for line in
                                         documents({"x": steps}).splitlines()[1:]))
    more = "resources: [podgroup.yaml]\n" if name == "volcano" else ""
    return ("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" + more
            + "patches:\n" + "".join(patches))


def written():
    """Path below deploy/kubernetes, text: all that the launcher decides."""
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    for kind in COMMANDS:
        yield f"{kind}/{kind}.yaml", kubernetes.text(parsed(kind))
        yield f"{kind}/kustomization.yaml", f"{head}resources: [{kind}.yaml]\n"
    for name in OVERLAYS:
        yield f"overlays/{name}/kustomization.yaml", component(name)
    yield "overlays/volcano/podgroup.yaml", documents(objects("job", "volcano")[-1])
    for example, (kind, overlay) in EXAMPLES.items():
        names = "".join(f"- ../overlays/{name}\n" for name in overlay.split(","))
        yield (f"{example}/kustomization.yaml",
               f"{head}resources: [../{kind}]\ncomponents:\n{names}")


class Files(unittest.TestCase):
    def test_the_folder_is_what_the_launcher_prints(self):
        names = set()
        for name, text in written():
            names.add(name)
            path = os.path.join(FOLDER, name)
            if os.environ.get("TELEGRAD_RECORD"):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            with open(path) as file:
                self.assertEqual(text, file.read(), name)
        there = {os.path.relpath(path, FOLDER)
                 for path in glob.glob(f"{FOLDER}/**/*.yaml", recursive=True)}
        self.assertEqual(names, there)

    def test_kustomize_gives_what_the_launcher_prints(self):
        for example, (kind, overlay) in {**{kind: (kind, "") for kind in COMMANDS},
                                         **EXAMPLES}.items():
            self.compare(os.path.join(FOLDER, example), objects(kind, overlay))

    def test_kustomize_adds_all_overlays_alike(self):
        copied = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, copied)
        where = os.path.join(shutil.copytree(FOLDER, os.path.join(copied, "kubernetes")), "all")
        os.makedirs(where)
        for kind in COMMANDS:
            with open(os.path.join(where, "kustomization.yaml"), "w") as file:
                file.write(f"resources: [../{kind}]\ncomponents:\n"
                           + "".join(f"- ../overlays/{name}\n" for name in OVERLAYS))
            self.compare(where, objects(kind, ",".join(OVERLAYS)))

    def compare(self, folder, expected):
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl here")
        yaml = need("yaml", self)
        done = subprocess.run(["kubectl", "kustomize", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        if b"Component" in done.stderr:
            self.skipTest("kubectl's Kustomize is older than 5")
        self.assertEqual(done.returncode, 0, done.stderr)
        by_kind = {thing["kind"]: thing for thing in yaml.safe_load_all(done.stdout)}
        self.assertEqual(by_kind, {thing["kind"]: thing for thing in expected})

    def test_starts_again_go_on_from_a_checkpoint(self):
        its = parsed("job")
        its.program += ["--checkpoint", "/data/run1"]
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "telegrad-train")
            with open(program, "w") as file:
                file.write('#!/bin/sh\nif [ "$1" = --show-checkpoint ]; then exec test -e there; fi'
                           '\necho "$@"\n')
            os.chmod(program, 0o755)
            its.program[0] = program
            command = kubernetes.objects(its)[-1]["spec"]["template"]["spec"]["containers"][0][
                "command"]

            def said():
                return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE,
                                      check=True).stdout
            self.assertNotIn(b"--resume", said())
            open(os.path.join(folder, "there"), "w").close()
            self.assertRegex(said(), b"^--gc-type int2 --checkpoint .* --resume$")

    def test_what_a_kind_cannot_have_is_refused(self):
        for words, said in (("--kind trainer -n 2 -- telegrad-train", "by torchrun"),
                            ("--kind mpijob -s 1 -- python3 t.py", "jobset has roles"),
                            ("--kind jobset -s 1 -- telegrad-perf pushpull", "no roles"),
                            ("--overlay gpus -- telegrad-train", "there are tcp, rdma, gpu")):
            with self.assertRaisesRegex(Refused, said):
                kubernetes.objects(options.parse(shlex.split(
                    f"--print kubernetes --image x {words}")))


def need(module, test):
    try:
        return importlib.import_module(module)
    except ImportError:
        return test.skipTest(f"no {module} here")


def strict(schema):
    """A schema of a resource definition, in which unknown names are errors."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema \
            and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def typos(thing):
    """Copies of `thing`, each with one name that is wrong."""
    def walk(value, path):
        if isinstance(value, dict):
            for name, each in value.items():
                free = path and (path[-1] in FREE or path[-2:] == ["spec", "selector"])
                if not free and path + [name] not in (["kind"], ["apiVersion"]):
                    yield path, name
                yield from walk(each, path + [name])
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from walk(each, path + [index])

    for path, name in walk({key: value for key, value in thing.items() if key != "metadata"}, []):
        wrong = copy.deepcopy(thing)
        at = wrong
        for step in path:
            at = at[step]
        at[name + "x"] = at.pop(name)
        yield "/".join(map(str, path + [name])), wrong


class Schemas(unittest.TestCase):
    OTHERS = {"JobSet": "jobset", "MPIJob": "mpijob", "TrainJob": "trainjob",
              "TrainingRuntime": "clustertrainingruntime"}

    def setUp(self):
        self.validate = need("kubernetes_validate", self)
        self.jsonschema = need("jsonschema", self)
        self.cache = {}

    def definition(self, kind):
        folder = os.environ.get("TELEGRAD_KUBERNETES_FIXTURES")
        if not folder:
            self.skipTest("TELEGRAD_KUBERNETES_FIXTURES names no folder with the definition "
                          f"of {kind}")
        with open(os.path.join(folder, self.OTHERS[kind] + ".yaml")) as file:
            return next(each for each in need("yaml", self).safe_load_all(file)
                        if each and each["kind"] == "CustomResourceDefinition")

    def own(self, kind, version):
        """A validator; metadata is any object in a definition."""
        if kind not in self.cache:
            found = next(each for each in self.definition(kind)["spec"]["versions"]
                         if each["name"] == version)["schema"]["openAPIV3Schema"]
            found["properties"]["metadata"] = {"type": "object"}
            self.cache[kind] = self.jsonschema.Draft7Validator(strict(found))
        return self.cache[kind]

    def errors(self, thing, version):
        kind = thing["kind"]
        if kind in self.OTHERS:
            found = next(self.own(kind, thing["apiVersion"].split("/")[1]).iter_errors(thing), None)
            return found.message if found else None
        try:
            self.validate.validate(thing, version, strict=True)
        except self.validate.ValidationError as why:
            return str(why)
        return None

    def check(self, kind):
        for overlay in ("", *OVERLAYS, ",".join(OVERLAYS)):
            for thing in objects(kind, overlay):
                if thing["kind"] == "PodGroup":  # Volcano's definition is not at hand
                    continue
                for version in VERSIONS:
                    if "restart-in-place" in overlay and thing["kind"] == "Job":
                        version = VERSIONS[-1]
                    self.assertIsNone(self.errors(thing, version), (kind, overlay, version))

    def test_a_job_is_right(self):
        self.check("job")

    def test_a_jobset_is_right(self):
        self.check("jobset")

    def test_an_mpijob_is_right(self):
        self.check("mpijob")

    def test_a_trainjob_and_its_runtime_are_right(self):
        self.check("trainer")

    def test_a_typo_anywhere_is_found(self):
        count = 0
        has_all = "TELEGRAD_KUBERNETES_FIXTURES" in os.environ
        for kind in COMMANDS if has_all else ["job"]:
            for thing in objects(kind):
                for where, wrong in typos(thing):
                    count += 1
                    self.assertIsNotNone(self.errors(wrong, VERSIONS[-1]),
                                         f"{thing['kind']}: {where} with an x more")
        self.assertGreater(count, 300 if has_all else 70)
        print(json.dumps({"typos planted and found": count}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
