#!/usr/bin/env python3
"""A program's --help as a manual page or as words for bash to complete.

    describe.py man|completion PROGRAM
"""
import os
import re
import subprocess
import sys

ABOUT = {"telegrad-train": "train with compressed gradients, and compare codecs",
         "telegrad-server": "a server of a job, or its scheduler",
         "telegrad-perf": "measure codecs, links and exchanges",
         "telegrad-topo": "show, check and plan for the topology of a machine",
         "telegrad-launch": "start a job on all its hosts"}
SUBCOMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:  |$)", re.M)
FLAG = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")


def help_of(program, *words):
    done = subprocess.run([program, *words, "--help"], stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"})
    return done.stdout.decode()


def parts(program):
    """(name of a subcommand or "", its help)."""
    text = help_of(program)
    yield "", text
    _, is_there, after = text.partition("\nSubcommands:\n")
    for name in SUBCOMMAND.findall(after.partition("\n\n")[0]) if is_there else ():
        yield name, help_of(program, name)


def roff(text):
    """Lines as they are."""
    made = []
    for line in text.rstrip().splitlines():
        line = line.replace("\\", "\\e").replace("-", "\\-")
        made.append("\\&" + line if line[:1] in (".", "'") else line)
    return "\n".join(made)


def man(program):
    name = os.path.basename(program)
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE,
                             check=True).stdout.decode().split()[0]
    made = [f'.TH {name.upper()} 1 "" "Telegrad {version}" "User Commands"', ".SH NAME",
            f"{name} \\- {ABOUT[name]}"]
    for subcommand, text in parts(program):
        title = f"{name} {subcommand}".upper() if subcommand else "DESCRIPTION"
        made += [f'.SH "{title}"', ".nf", roff(text), ".fi"]
    made += [".SH SEE ALSO", "The package telegrad\\-doc has the user guide."]
    return "\n".join(made) + "\n"


def completion(program):
    name = os.path.basename(program)
    function = "_" + name.replace("-", "_")
    cases, commands = [], []
    for subcommand, text in parts(program):
        flags = " ".join(sorted(set(FLAG.findall(text))))
        if subcommand:
            commands.append(subcommand)
            cases.append(f"    {subcommand}) words='{flags}' ;;\n")
        else:
            first = flags
    words = " ".join([*commands, first])
    return (f"# bash completion for {name}\n{function}() {{\n  local words='{words}'\n"
            + ("  case ${COMP_WORDS[1]} in\n" + "".join(cases) + "  esac\n" if cases else "")
            + "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
            f"}}\ncomplete -o default -F {function} {name}\n")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("man", "completion"):
        sys.exit(__doc__)
    sys.stdout.write({"man": man, "completion": completion}[sys.argv[1]](sys.argv[2]))
