"""A strict reader of Prometheus' text format, version 0.0.4."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LINE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
NUMBER = re.compile(r"NaN|[+-]Inf|[+-]?\d+(\.\d+)?(e[+-]?\d+)?")


def labels_of(text):
    labels, at = {}, 0
    while text and at < len(text):
        found = LABEL.match(text, at)
        assert found, f"labels {text!r} at {at}"
        assert found[1] not in labels, text
        labels[found[1]], at = found[2], found.end()
    assert not text.endswith(","), text
    return labels


def parse(text):
    """family -> (type, {(name, labels as sorted pairs): value}); raises
    AssertionError where a Prometheus server would refuse or misread it."""
    assert text.endswith("\n")
    families, seen, now, helped = {}, set(), None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            continue
        if line.startswith("# TYPE "):
            _, _, now, kind = line.split(" ")
            assert now == helped and now not in families, line
            assert kind in ("counter", "gauge", "histogram"), line
            assert (kind == "counter") == now.endswith("_total"), line
            families[now] = kind, {}
            continue
        found = LINE.fullmatch(line)
        assert found and NUMBER.fullmatch(found[3]), line
        kind, samples = families[now]
        suffixes = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
        assert found[1] in [now + each for each in suffixes], line
        key = found[1], tuple(sorted(labels_of(found[2] or "").items()))
        assert key not in seen, f"twice: {line}"
        seen.add(key)
        samples[key] = float(found[3])
        assert kind == "gauge" or samples[key] >= 0, line
    for name, (kind, samples) in families.items():
        assert samples, f"{name} has no sample"
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def check_histogram(name, samples):
    """Buckets grow with their bounds up to the count."""
    buckets = {}
    for (sample, labels), value in samples.items():
        if sample.endswith("_bucket"):
            others = tuple(pair for pair in labels if pair[0] != "le")
            bound = float(dict(labels)["le"])
            buckets.setdefault(others, {})[bound] = value
    assert buckets, name
    for labels, by_bound in buckets.items():
        values = [by_bound[bound] for bound in sorted(by_bound)]
        assert math.inf in by_bound and values == sorted(values), name
        assert samples[name + "_count", labels] == by_bound[math.inf], name
        assert (name + "_sum", labels) in samples, name


def value(families, name, **wanted):
    """The sum over the series that have these labels; None: there is none."""
    kind, samples = families.get(name, ("", {}))
    found = [each for (_, labels), each in samples.items()
             if wanted.items() <= dict(labels).items()]
    return sum(found) if found else None
