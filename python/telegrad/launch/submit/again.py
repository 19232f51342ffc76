"""This command, as a submitted file has it."""
import shlex

_OF_PRINTING = ("--print", "--name", "--image", "--cluster", "--launcher")


def words(options):
    """Without what says how to print."""
    given = options.this_command[1:]
    count = len(given) - len(options.program)
    kept, skip = [], False
    for word in given[:count]:
        name, is_joined, _ = word.partition("=")
        if skip:
            skip = False
        elif name in _OF_PRINTING:
            skip = not is_joined
        elif word != "--":
            kept.append(word)
    return ["telegrad-launch", *kept, "--", *given[count:]]


def line(options):
    return "exec " + shlex.join(words(options)) + "\n"
