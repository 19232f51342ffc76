"""Counts again, by its own arithmetic, what those who sum in a job have written with
TELEGRAD_LEDGER or --ledger (docs/when_a_machine_dies.md)."""
import array
import glob
import json
import os

POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def _table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Life:
    """Members that summed together, and what they summed: {step: {tensor: parts}}."""

    def __init__(self, epoch, members):
        self.epoch, self.members, self.steps = epoch, members, {}

    def processes(self):
        return [int(member.rsplit(":", 1)[1]) for member in self.members]

    def whole(self, step, sizes):
        """Whether all of each tensor was summed, once."""
        parts = self.steps.get(step, {})
        return all(sorted((part["begin"], part["elems"]) for part in parts.get(name, [])) and
                   sum(part["elems"] for part in parts[name]) == size
                   for name, size in sizes.items())


def lives(folder):
    """All of a folder, each server's in their order."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        life = None
        with open(path, encoding="ascii") as file:
            for line in map(json.loads, file):
                if "workers" in line:
                    key = line["epoch"], tuple(line["workers"])
                    life = found.setdefault(key, Life(*key))
                    continue
                assert line["contributors"] == len(life.members), line
                life.steps.setdefault(line["step"], {}).setdefault(line["tensor"], []).append(line)
    return list(found.values())


class Count:
    """The job again: `sizes` of tensors, gradients as gradient(process, step)[tensor], and
    2bit with that threshold, or none with 0. All must be numbers that float32 adds exactly."""

    def __init__(self, sizes, gradient, threshold=0.0):
        self.sizes, self.gradient, self.threshold = sizes, gradient, threshold
        self.residuals = {}  # by process

    def codes(self, process, step):
        """What a worker sends; the rest is its residual from then on."""
        sent, kept = {}, self.residuals.setdefault(process, {})
        for name, values in self.gradient(process, step).items():
            held = kept.setdefault(name, [0.0] * len(values))
            sent[name] = []
            for i, value in enumerate(values):
                value += held[i]
                code = value
                if self.threshold:
                    code = (self.threshold if value >= self.threshold else
                            -self.threshold if value <= -self.threshold else 0.0)
                sent[name].append(code)
                held[i] = value - code
        return sent

    def sums(self, life, number, step):
        """Of the members' `step`, the life's `number`th; each part is compared by its checksum.
        What goes back to workers is the mean, as the hook has it."""
        sent = [self.codes(process, step) for process in life.processes()]
        total = {name: [sum(values) for values in zip(*(each[name] for each in sent))]
                 for name in self.sizes}
        share, = array.array("f", [1 / len(sent)])
        for name in self.sizes:  # others are the hook's own
            for part in life.steps[number][name]:
                begin = part["begin"]
                floats = array.array("f", [
                    value * share for value in total[name][begin:begin + part["elems"]]])
                assert part["bytes"] == 4 * len(floats), part
                assert part["crc32c"] == crc32c(floats.tobytes()), (step, name, part)
        return total
