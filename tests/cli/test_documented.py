"""The commands that the documentation shows: each exists, with the options it is shown with."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from odradek.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
ALTERNATIVES = re.compile(r"[|/]")
PUNCTUATION = ".,;:()[]"


def shown_commands(text: str) -> Iterator[str]:
    """In backquotes, or at the start of a line of code, perhaps after a prompt or a pipe."""
    for inline in re.findall(r"`(odradek [^`]+)`", text):
        yield " ".join(inline.split())
    for line in text.replace("\\\n", " ").splitlines():
        if found := re.match(r"(?:    |\$ |.*\| )?(odradek [a-z][^`]*)$", line):
            yield found[1].split(" #")[0]


def wrong_with(line: str) -> Iterator[str]:
    """What a shown command names that there is not; a word in capitals stands for any."""
    command: click.Command = main
    options = option_names(main)
    context = click.Context(main)
    before = ""
    for word in line.split()[1:]:
        if takes_value(command, before):
            before = ""
            continue
        before = word
        if word.startswith("--"):
            given = {each.partition("=")[0] for each in ALTERNATIVES.split(word.strip(PUNCTUATION))}
            wanted = {each for each in given if each.startswith("--")}
            yield from (f"no option {each}" for each in sorted(wanted - options))
        elif isinstance(command, click.Group) and not word.isupper():
            found = [
                command.get_command(context, name)
                for name in ALTERNATIVES.split(word.strip(PUNCTUATION))
            ]
            if None in found:
                yield f"no command {word}"
                return
            command = next(each for each in found if each is not None)
            options |= set().union(*(option_names(each) for each in found if each is not None))


def takes_value(command: click.Command, option: str) -> bool:
    options = (param for param in command.params if isinstance(param, click.Option))
    return any(option in param.opts and not param.is_flag for param in options)


def option_names(command: click.Command) -> set[str]:
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return names | {"--help", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_commands_that_exist(page: Path) -> None:
    shown = list(shown_commands(page.read_text()))
    wrong = {line: found for line in shown if (found := list(wrong_with(line)))}
    assert not wrong


def test_most_pages_show_some_and_a_wrong_one_is_found() -> None:
    assert sum(len(list(shown_commands(page.read_text()))) for page in PAGES) > 60
    assert list(wrong_with("odradek topics creat t --partition 3")) == ["no command creat"]
    assert list(wrong_with("odradek topics create t --partition 3")) == ["no option --partition"]
    assert list(wrong_with("odradek topics list|describe|alter NAME --json")) == []


def test_a_verb_of_make_that_is_named_exists() -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        verb
        for page in (*PAGES, ROOT / "ARCHITECTURE.md")
        for verb in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert len(named) > 10
    assert named <= verbs


def test_contributing_lists_every_test_beside_apache_kafka() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = set(re.findall(r"^\| `(test_\w+)` \|", text, re.MULTILINE))
    assert listed == {path.stem for path in (ROOT / "tests" / "interop").glob("test_*.py")}
