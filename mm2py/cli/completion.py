"""
``mm2py completion SHELL``: a script by which bash, zsh or fish complete the commands.

It is made of the commands' own parsers, so it knows what this version knows, and starts no Python while a user types. A
word that is no command, such as a flow's name, is passed over.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from mm2py.cli.parsers import Parser


_DESCRIPTION = """\
Print a script by which a shell completes these commands. For the session:

  source <(mm2py completion bash)          (or zsh, after compinit)
  mm2py completion fish | source

For good: put that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
"""
_BASH = """\
_mm2py() {{
    local word path='' words current=${{COMP_WORDS[COMP_CWORD]}}
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case "$path $word" in
{steps}
        esac
    done
    case "$path" in
{choices}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ ${{#COMPREPLY[@]}} -gt 0 || $current == -* ]] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _mm2py mm2py
"""
_ZSH = """\
autoload -Uz bashcompinit && bashcompinit
{bash}"""
_FISH = """\
function __mm2py_path
    set -l path ''
    for word in (commandline -opc)[2..-1]
        switch "$path $word"
{steps}
        end
    end
    echo -- "$path"
end
{choices}
"""
_FISH_STEP = """\
            case '{path}'
                set path "$path $word\""""
_FISH_CHOICE = """complete -c mm2py -n 'test "$(__mm2py_path)" = "{path}"' {word} -d {purpose}"""


@attrs.frozen
class Command:
    """A command's words so far, and what may follow: commands below it, choices and options, with what each is for."""

    path: tuple[str, ...]
    words: Mapping[str, str]


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py completion", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell that is to complete")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py completion`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    print(_SCRIPTS[options.shell](list(all_commands())), end="")
    return 0


def all_commands() -> Iterator[Command]:
    """Return each command of ``mm2py``, the outermost first."""
    from mm2py.cli.main import COMMANDS  # noqa: PLC0415 - it names this module
    from mm2py.cli.offsets import ACTIONS  # noqa: PLC0415 - as all commands, it is loaded when it is asked for

    yield Command((), {name: purpose for name, (_, purpose) in COMMANDS.items()})
    for name, (module, _) in COMMANDS.items():
        if name == "offsets":
            yield Command((name,), {action: purpose for action, (_, purpose) in ACTIONS.items()})
            for action, (of_action, _) in ACTIONS.items():
                make = importlib.import_module(f"mm2py.cli.{of_action}").make_parser
                yield from _below((name, action), make() if action == "translate" else make(action))
        else:
            yield from _below((name,), importlib.import_module(f"mm2py.cli.{module}").make_parser())


def _below(path: tuple[str, ...], parser: argparse.ArgumentParser) -> Iterator[Command]:
    words: dict[str, str] = {}
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        purpose = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            inner |= action.choices
            words |= {choice.dest: str(choice.help or "") for choice in action._choices_actions}  # noqa: SLF001
        elif action.option_strings:
            words[max(action.option_strings, key=len)] = purpose
        elif action.choices is not None:
            words |= dict.fromkeys(map(str, action.choices), purpose)
    yield Command(path, words)
    for name, below in inner.items():
        yield from _below((*path, name), below)


def _bash(commands: Sequence[Command]) -> str:
    steps = "\n".join(f'            {shlex.quote(_joined(one.path))}) path+=" $word" ;;' for one in commands[1:])
    choices = "\n".join(
        f"        {shlex.quote(_joined(one.path))}) words={shlex.quote(' '.join(one.words))} ;;" for one in commands
    )
    return _BASH.format(steps=steps, choices=choices)


def _zsh(commands: Sequence[Command]) -> str:
    return _ZSH.format(bash=_bash(commands))


def _fish(commands: Sequence[Command]) -> str:
    steps = "\n".join(_FISH_STEP.format(path=_joined(one.path)) for one in commands[1:])
    choices = "\n".join(
        _FISH_CHOICE.format(
            path=_joined(one.path),
            word=f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {_fished(word)}",
            purpose=_fished(purpose),
        )
        for one in commands
        for word, purpose in one.words.items()
        if word.startswith("--") or not word.startswith("-")
    )
    return _FISH.format(steps=steps, choices=choices)


def _joined(path: Sequence[str]) -> str:
    return "".join(f" {word}" for word in path)


def _fished(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[Sequence[Command]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
