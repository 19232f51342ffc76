#!/usr/bin/env python3
"""Makes C++ of CUDA C++, as far as our sources need it.

    translate.py FROM TO

`kernel<<<grid, block, ...>>>(arguments)` becomes
`kernel | ::telegrad::simt::Grid(grid, block, ...).With(arguments)`, and
`__shared__ T name[n];` a reference to memory of the block. Lines keep their
numbers. Exits 1 with a message where something is not understood.
"""
import re
import sys

# What the patterns below must not look into.
QUIET = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.S)
SHARED = re.compile(
    r"__shared__\s+(?P<type>[^;=()\[\]]*?[\s>])(?P<name>\w+)\s*"
    r"(?P<extents>(?:\[[^\[\]]*\]\s*)*);")


class NotUnderstood(Exception):
    pass


def blanked(text):
    """The text with comments and literals as spaces, of the same length."""
    return QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def end_of_configuration(code, begin):
    """Where the `>>>` of the `<<<` before `begin` is."""
    depth = 0
    for at in range(begin, len(code)):
        if code[at] in "([{":
            depth += 1
        elif code[at] in ")]}":
            depth -= 1
        elif code[at] == ";" or depth < 0:
            break
        elif depth == 0 and code.startswith(">>>", at):
            return at
    raise NotUnderstood(f"line {line_of(code, begin)}: <<< without its >>>")


def launches(code):
    """(begin, end, replacement) for each <<< and each >>>( of a launch."""
    at = code.find("<<<")
    while at >= 0:
        if not re.search(r"[\w>]\s*$", code[:at]):
            raise NotUnderstood(
                f"line {line_of(code, at)}: no kernel before <<<")
        end = end_of_configuration(code, at + 3)
        opening = re.compile(r">>>\s*\(").match(code, end)
        if not opening:
            raise NotUnderstood(
                f"line {line_of(code, end)}: no arguments after >>>")
        lines = "\n" * opening.group().count("\n")
        yield at, at + 3, " | ::telegrad::simt::Grid("
        yield end, opening.end(), ")" + lines + ".With("
        at = code.find("<<<", end)


def shared_variables(code):
    for found in SHARED.finditer(code):
        if re.search(r"\bextern\s*$", code[:found.start()]):
            raise NotUnderstood(f"line {line_of(code, found.start())}: "
                                "__shared__ memory of the launch's size")
        kind = " ".join(found["type"].split())
        extents = " ".join(found["extents"].split())
        lines = "\n" * found.group().count("\n")
        yield found.start(), found.end(), (
            f"static char place_of_{found['name']}; "
            f"auto& {found['name']} = ::telegrad::simt::Shared<{kind} {extents}>"
            f"(&place_of_{found['name']});{lines}")


def translated(text):
    code = blanked(text)
    changes = sorted([*launches(code), *shared_variables(code)])
    parts = []
    done = 0
    for begin, end, replacement in changes:
        parts += [text[done:begin], replacement]
        done = end
    result = "".join(parts) + text[done:]
    left = re.search(r"<<<|>>>\s*\(|__shared__", blanked(result))
    if left:
        raise NotUnderstood(
            f"line {line_of(result, left.start())}: {left.group()} is left")
    return result


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    try:
        result = translated(text)
    except NotUnderstood as error:
        sys.exit(f"{source}: {error}")
    with open(target, "w", encoding="utf-8") as file:
        file.write(f'#line 1 "{source}"\n{result}')


if __name__ == "__main__":
    main()
