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
REPEATS = 25  # of each operation of a codec: some ms, of which one run is noise


def output(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-600:]}")
    return done.stdout


def output_beside(words, count, has_a_core):
    """Of one of `count` that run at the same time: nodes of one machine share
    its memory, and each has what it has while the others work as well."""
    def on_its_core(node):
        return ["taskset", "-c", str(node), *words] if has_a_core else words

    others = [subprocess.Popen(on_its_core(node), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
              for node in range(1, count)]
    try:
        return output(on_its_core(0))
    finally:
        for other in others:
            other.kill()
            other.wait()


def figure(value):
    return {"value": value, "spread": 0.1, "confidence": "measured",
            "reason": "by perf/grid"}


class Planner:
    """telegrad-topo with a calibration of this machine for `nodes` workers that
    exchange `elements`.

    `cores`: of a node, as all nodes share this machine. `link`: fields of the
    calibration, from link.figures.
    """

    def __init__(self, build, nodes, cores, elements, link, quick=False):
        self.topo = os.path.join(build, "topology", "telegrad-topo")
        self.perf = os.path.join(build, "perf", "telegrad-perf")
        self.nodes = nodes
        self.calibration = self._calibrate(cores, elements, link, quick)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(self.calibration, self.file)
        self.file.flush()

    def _calibrate(self, cores, elements, link, quick):
        merged = None
        for reply in sorted({reply for _, reply in CALIBRATED.values()}):
            plans = {codec: plan for plan, (codec, each) in CALIBRATED.items()
                     if each == reply}
            words = [self.perf, "calibrate", "--codecs", ",".join(plans),
                     "--reply", reply, "--workers", str(self.nodes),
                     "--elements", str(4096 if quick else elements)]
            words += ["--repeats", str(2 if quick else REPEATS)]
            busy = min(self.nodes, os.cpu_count() or 1)
            found = json.loads(output_beside(words, busy,
                                             have_a_core(self.nodes)))
            for each in found["codecs"]:  # as the plan is called here
                each["name"] = plans[each["name"]]
            if merged:
                merged["codecs"] += found["codecs"]
            else:
                merged = found
        merged["cores"] = figure(cores)
        for each in merged["links"]:
            if each["name"] == LINK:
                each.update({field: figure(value)
                             for field, value in link.items()})
        return merged

    def _words(self, command, profile, gbps):
        return [self.topo, command, "--json", "--workers", str(self.nodes),
                "--profile", profile, "--link-gbps", str(gbps), "--transport",
                LINK, "--chunk-elements", str(CHUNK), "--calibration",
                self.file.name]

    def _plan(self, profile, gbps, gc_type):
        return json.loads(output([*self._words("plan", profile, gbps),
                                  "--gc-type", gc_type]))

    def choice(self, profile, gbps):
        """(name in PLANS, predicted seconds, reason)."""
        plan = self._plan(profile, gbps, "auto")
        name = plan["codec"]
        if name == "none":
            name = "raw, ring" if plan["aggregation"] == "ring" else "raw"
        reason = [text for text in plan["reasons"]
                  if text.startswith("compression")]
        return name, plan["comm_s"], "; ".join(reason)

    def predicted(self, plan, profile, gbps):
        """Seconds of an exchange."""
        if plan == "raw":  # a plan without servers of their own has a ring
            text = output([*self._words("simulate", profile, gbps),
                           "--compute-ms", "0", "--overlap", "none",
                           "--aggregation", "co-located-servers"])
            return 1e-3 * json.loads(text)[0]["comm_ms"]
        gc_type = "none" if plan == "raw, ring" else plan
        return self._plan(profile, gbps, gc_type)["comm_s"]
