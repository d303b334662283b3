"""
``mm2py completion SHELL``: a script by which bash, zsh or fish complete the commands.

It is made of the commands' own parsers, so it knows what this version knows. A word that is no command, such as a
flow's name, is passed over. What only a node or a file knows is asked for with ``mm2py completion values KIND``, which
reads the words of the line from standard input; nothing else starts Python while a user types.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from mm2py.cli.completion_values import KINDS, values_of
from mm2py.cli.parsers import Parser


_DESCRIPTION = """\
Print a script by which a shell completes these commands. For the session:

  source <(mm2py completion bash)          (or zsh, after compinit)
  mm2py completion fish | source

For good: put that line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
"""
_BASH = """\
_mm2py() {{
    local word at='' words='' kind=''
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case "$at $word" in
{steps}
        esac
    done
    # --option=VALUE is three words to bash.
    [[ $previous != = ]] || previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    [[ $current != = ]] || current=''
    case "$at $previous" in
{values}
    *)
        [[ ${{COMP_WORDS[COMP_CWORD]}} == = || ${{COMP_WORDS[COMP_CWORD - 1]}} == = ]] || case "$at" in
{choices}
        esac
    esac
    COMPREPLY=()
    # The compgen of zsh would offer all words, however they begin.
    for word in $words; do
        [[ $word != "$current"* ]] || COMPREPLY+=("$word")
    done
    if [[ -n $kind && $current != -* ]]; then
        while IFS= read -r word; do
            [[ -z $word ]] || COMPREPLY+=("$word")
            # What goes on with a value.
            [[ $word != *= ]] || compopt -o nospace +o filenames 2>/dev/null
        done <<<"$(printf '%s\\n' "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}" "$current" |
            "${{COMP_WORDS[0]/#\\~/$HOME}}" completion values "$kind" 2>/dev/null)"
    fi
}}
complete -o default -o filenames -F _mm2py mm2py
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
function __mm2py_values
    set -l words (commandline -opc)
    printf '%s\\n' $words[2..-1] (commandline -ct) | $words[1] completion values $argv[1] 2>/dev/null
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
    #: Of options with a value: the values, if they are known, and of which kind they are, if others know them.
    choices: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    kinds: Mapping[str, str] = attrs.field(factory=dict)
    #: Of which kind a word may be that is no option.
    kind: str = ""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py completion", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell that is to complete")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py completion`` with *arguments* and return the exit code."""
    if list(arguments[:1]) == ["values"]:
        return _values(arguments[1:])
    options = make_parser().parse_args(arguments)
    print(_SCRIPTS[options.shell](list(all_commands())), end="")
    return 0


def _values(arguments: Sequence[str]) -> int:
    """Print the values of a kind for the line whose words come from standard input."""
    with contextlib.suppress(Exception):
        for value in values_of(arguments[0], sys.stdin.read().splitlines()):
            print(value)
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
    values: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, str] = {}
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        purpose = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            inner |= action.choices
            words |= {choice.dest: str(choice.help or "") for choice in action._choices_actions}  # noqa: SLF001
        elif action.option_strings:
            words[max(action.option_strings, key=len)] = purpose
            for option in action.option_strings if action.nargs != 0 else ():
                values[option], kinds[option] = (
                    tuple(map(str, action.choices or ())),
                    KINDS.get(str(action.metavar), ""),
                )
        elif action.choices is not None:
            words |= dict.fromkeys(map(str, action.choices), purpose)
    # A flow comes first, and its verbs after it.
    of_words = (action for action in parser._actions if not action.option_strings)  # noqa: SLF001 - as above
    kind = next((KINDS[name] for action in of_words if (name := str(action.metavar)) in KINDS), "")
    yield Command(path, words, values, kinds, kind)
    for name, below in inner.items():
        yield from _below((*path, name), below)


def _bash(commands: Sequence[Command]) -> str:
    steps = "\n".join(f'            {shlex.quote(_joined(one.path))}) at+=" $word" ;;' for one in commands[1:])
    choices = "\n".join(
        f"        {shlex.quote(_joined(one.path))}) words={shlex.quote(' '.join(one.words))} kind={one.kind} ;;"
        for one in commands
    )
    values = "\n".join(
        f"    {shlex.quote(_joined((*one.path, option)))}) words={shlex.quote(' '.join(one.choices[option]))} "
        f"kind={kind} ;;"
        for one in commands
        for option, kind in one.kinds.items()
    )
    return _BASH.format(steps=steps, choices=choices, values=values)


def _zsh(commands: Sequence[Command]) -> str:
    return _ZSH.format(bash=_bash(commands))


def _fish(commands: Sequence[Command]) -> str:
    steps = "\n".join(_FISH_STEP.format(path=_joined(one.path)) for one in commands[1:])
    choices = [
        _FISH_CHOICE.format(path=_joined(one.path), word=_fish_word(one, word), purpose=_fished(purpose))
        for one in commands
        for word, purpose in one.words.items()
        if word.startswith("--") or not word.startswith("-")
    ]
    choices += [
        _FISH_CHOICE.format(path=_joined(one.path), word=f"-a '(__mm2py_values {one.kind})'", purpose=_fished(one.kind))
        for one in commands
        if one.kind
    ]
    return _FISH.format(steps=steps, choices="\n".join(choices))


def _fish_word(command: Command, word: str) -> str:
    if not word.startswith("--"):
        return f"-a {_fished(word)}"
    option = f"-l {word.removeprefix('--')}"
    if kind := command.kinds.get(word):
        return f"{option} -x -a '(__mm2py_values {kind})'"
    if choices := command.choices.get(word):
        return f"{option} -x -a {_fished(' '.join(choices))}"
    return f"{option} -r" if word in command.kinds else option


def _joined(path: Sequence[str]) -> str:
    return "".join(f" {word}" for word in path)


def _fished(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[Sequence[Command]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
