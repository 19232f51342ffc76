"""Manual pages and completion have each flag of each program's --help.

    describe_test.py ROOT PROGRAM...
"""
import os
import re
import subprocess
import sys
import tempfile

root, *programs = sys.argv[1:]
describe = f"{root}/deploy/packages/describe.py"
flag = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def made(kind, program):
    return subprocess.run([sys.executable, "-B", describe, kind, program], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


for program in [*programs, f"{root}/python/telegrad-launch"]:
    name = os.path.basename(program)
    told = subprocess.run([program, "--help"], check=True, stdout=subprocess.PIPE,
                          env={**os.environ, "COLUMNS": "80"}).stdout.decode()
    page, words = made("man", program), made("completion", program)
    flags = set(flag.findall(told))
    assert flags, told
    for each in flags:
        assert each.replace("-", "\\-") in page, f"{name}: {each} is not in the manual page"
        assert each in words, f"{name}: {each} is not completed"
    assert f'.TH {name.upper()} 1 "" "Telegrad ' in page, page[:80]
    assert not [line for line in page.splitlines() if line.startswith("'")]
    with tempfile.NamedTemporaryFile("w", suffix=".bash") as file:
        file.write(words)
        file.flush()
        function = "_" + name.replace("-", "_")
        done = subprocess.run(
            ["bash", "-c", f"source {file.name}; COMP_WORDS=({name} --he); COMP_CWORD=1; "
             f"{function}; echo ${{COMPREPLY[*]}}"], stdout=subprocess.PIPE, check=True)
        assert done.stdout.decode().split() == ["--help"], (name, done.stdout)
print(f"{len(programs) + 1} programs")
