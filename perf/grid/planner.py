"""What the planner is told of this machine, chooses and predicts."""
import json
import os
import subprocess
import tempfile

from start import have_a_core

# telegrad-perf's flags of each plan; of those with a codec, the codec and the
# servers' reply with which it is calibrated.
PLANS = {
    "raw, ring": ["allreduce", "--algorithm", "ring"],
    "raw": ["pushpull"],
    "fp16": ["pushpull", "--gc-type", "fp16"],
    "2bit, sum": ["pushpull", "--gc-type", "2bit", "--gc-reply", "sum"],
    "2bit, reencode": ["pushpull", "--gc-type", "2bit", "--gc-reply",
                       "reencode"],
    "onebit": ["pushpull", "--gc-type", "onebit"],
    "threshold": ["pushpull", "--gc-type", "threshold"],
}
CALIBRATED = {"fp16": ("fp16", "auto"), "2bit, sum": ("2bit", "sum"),
              "2bit, reencode": ("2bit", "reencode"),
              "onebit": ("onebit", "auto"), "threshold": ("threshold", "auto")}
# Steps until a codec sends as much as it will: what `threshold` holds back grows
# for so long, and its density with it.
WARMUP = {"threshold": 150}
CHUNK = 524288  # elements, of telegrad-perf pushpull
LINK = "TCP"
REPEATS = 9  # of each operation of a codec: some ms, of which one run is noise
TIMES = ("call_s", "handover_s")  # among figures that are rates


def output(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-600:]}")
    return done.stdout


def outputs_beside(words, count, has_a_core):
    """Of `count` that run at the same time: nodes of one machine share its
    memory, and each has what it has while the others work as well."""
    def on_its_core(node):
        return ["taskset", "-c", str(node), *words] if has_a_core else words

    nodes = [subprocess.Popen(on_its_core(node), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for node in range(count)]
    outputs = []
    try:
        for node in nodes:
            text, errors = node.communicate()
            if node.returncode != 0:
                raise RuntimeError(f"{' '.join(words)}: {errors[-600:]}")
            outputs.append(text)
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    return outputs


def slowest(entries):
    """Of nodes' entries of the same calibration: each figure of the one that is
    slowest in it, as the workers of a run do. A process has the memory that
    it gets, which on a virtual machine may be a third slower than another's."""
    merged = dict(entries[0])
    for name, figure_of_first in entries[0].items():
        if isinstance(figure_of_first, dict):
            pick = max if name in TIMES else min
            merged[name] = pick((each[name] for each in entries),
                                key=lambda figure: figure["value"])
    return merged


def slowest_calibration(calibrations):
    merged = slowest(calibrations)
    merged["codecs"] = [slowest(codec) for codec in
                        zip(*(each["codecs"] for each in calibrations))]
    return merged


def figure(value):
    return {"value": value, "spread": 0.1, "confidence": "measured",
            "reason": "by perf/grid"}


class Planner:
    """telegrad-topo with a calibration of this machine for `nodes` workers that
    exchange `elements`.

    `cores`: of a node, as all nodes share this machine.
    """

    def __init__(self, build, nodes, cores, elements, quick=False):
        self.topo = os.path.join(build, "topology", "telegrad-topo")
        self.perf = os.path.join(build, "perf", "telegrad-perf")
        self.nodes = nodes
        self.calibration = self._calibrate(cores, elements, quick)
        self.file = None

    def core(self):
        """What link.frame_costs takes."""
        return {"copy_s": 1 / self.calibration["copy"]["value"],
                "handover_s": self.calibration["handover_s"]["value"]}

    def set_link(self, fields):
        """`fields` of the calibration, from link.figures."""
        for each in self.calibration["links"]:
            if each["name"] == LINK:
                each.update({field: figure(value)
                             for field, value in fields.items()})
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(self.calibration, self.file)
        self.file.flush()

    def _calibrate(self, cores, elements, quick):
        merged = None
        for reply in sorted({reply for _, reply in CALIBRATED.values()}):
            plans = {codec: plan for plan, (codec, each) in CALIBRATED.items()
                     if each == reply}
            words = [self.perf, "calibrate", "--codecs", ",".join(plans),
                     "--reply", reply, "--workers", str(self.nodes),
                     "--elements", str(4096 if quick else elements)]
            words += ["--repeats", str(2 if quick else REPEATS)]
            busy = min(self.nodes, os.cpu_count() or 1)
            found = slowest_calibration(
                [json.loads(text) for text in
                 outputs_beside(words, busy, have_a_core(self.nodes))])
            for each in found["codecs"]:  # as the plan is called here
                each["name"] = plans[each["name"]]
            if merged:
                merged["codecs"] += found["codecs"]
            else:
                merged = found
        merged["cores"] = figure(cores)
        return merged

    def _words(self, command, profile, gbps):
        return [self.topo, command, "--json", "--workers", str(self.nodes),
                "--profile", profile, "--link-gbps", str(gbps), "--transport",
                LINK, "--chunk-elements", str(CHUNK), "--calibration",
                self.file.name]

    def _plan(self, profile, gbps, gc_type):
        allowed = ["--gc-allow", "all"] if gc_type == "auto" else []
        return json.loads(output([*self._words("plan", profile, gbps),
                                  "--gc-type", gc_type, *allowed]))

    def choice(self, profile, gbps):
        """(name in PLANS, predicted seconds, reason)."""
        plan = self._plan(profile, gbps, "auto")
        name = plan["codec"]
        if name == "none":
            name = "raw, ring" if plan["aggregation"] == "ring" else "raw"
        reason = [one["why"] for one in plan["decisions"]
                  if one["what"] == "compression"]
        return name, plan["comm_s"], "; ".join(reason)

    def predicted(self, plan, profile, gbps):
        """Seconds of an exchange by the planner."""
        if plan == "raw":  # a plan without servers of their own has a ring
            return self.simulated(plan, profile, gbps)
        gc_type = "none" if plan == "raw, ring" else plan
        return self._plan(profile, gbps, gc_type)["comm_s"]

    def simulated(self, plan, profile, gbps):
        """Seconds of an exchange by the simulator."""
        is_ring = plan == "raw, ring"
        text = output([*self._words("simulate", profile, gbps), "--compute-ms",
                       "0", "--overlap", "none", "--codec",
                       plan if plan in CALIBRATED else "none", "--aggregation",
                       "ring" if is_ring else "co-located-servers"])
        return 1e-3 * json.loads(text)[0]["comm_ms"]
