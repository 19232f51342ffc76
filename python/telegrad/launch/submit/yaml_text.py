"""YAML of dictionaries, lists, strings, numbers and booleans."""
import json
import re

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _scalar(value):
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def dump(value, indent=0):
    """Lines; a value of one line begins with a space."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        rows = []
        for name, each in value.items():
            text = dump(each, indent + (0 if isinstance(each, list) else 1))
            rows.append(f"{pad}{name}:{text}" if text.startswith(" [") or _is_flat(each)
                        else f"{pad}{name}:\n{text}")
        return "\n".join(rows)
    if isinstance(value, list) and value and not all(map(_is_flat, value)):
        return "\n".join(f"{pad}- {dump(each, indent + 1).lstrip()}" for each in value)
    if isinstance(value, list):
        return " [" + ", ".join(map(_scalar, value)) + "]"
    return f" {_scalar(value) if not isinstance(value, dict) else '{}'}"


def _is_flat(value):
    return not isinstance(value, (dict, list)) or not value


def documents(*values):
    return "---\n".join(dump(value) + "\n" for value in values)
