#!/usr/bin/env python3
"""Writes the completions for zsh and fish from those for bash, which `make docs` writes from the
programs' own tables of options.

    packaging/completion.py zsh|fish docs/completion/crun.bash [NAME]    NAME: the installed name
"""
import pathlib
import re
import sys


def zsh(name, text):
    """zsh runs completions of bash; the function must end the file."""
    function = re.search(r"^(_\w+)\(\)", text, re.M).group(1)
    return (f"#compdef {name}\nautoload -U +X bashcompinit && bashcompinit\n{text}"
            f"_bash_complete -o bashdefault -o default -F {function}\n")


def fish(name, text):
    values = {}
    for names, words in re.findall(r'^ *([-\w|]+)\) COMPREPLY=\(\$\(compgen -W "([^"]*)"', text,
                                   re.M):
        values.update({option: words for option in names.split("|")})
    takes_file = {option for names in re.findall(r"^ *([-\w|]+)\) COMPREPLY=\(\$\(compgen -[fd]",
                                                 text, re.M) for option in names.split("|")}
    lines = []
    for option in dict.fromkeys(re.findall(r"--[a-z][-a-z]*", text)):
        line = f"complete -c {name} -l {option[2:]}"
        if values.get(option):
            line += f" -x -a '{values[option]}'"
        elif option in takes_file:
            line += " -r"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    shell, path = sys.argv[1], pathlib.Path(sys.argv[2])
    name = sys.argv[3] if len(sys.argv) > 3 else path.stem
    text = re.sub(r"^complete .*", f"complete -o bashdefault -o default -F _{path.stem} {name}",
                  path.read_text(), flags=re.M).replace("_crun-", "_crun_")
    sys.stdout.write({"zsh": zsh, "fish": fish}[shell](name, text))


if __name__ == "__main__":
    main()
