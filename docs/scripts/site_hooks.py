"""What MkDocs cannot do by itself: pages from outside docs/, the reference of names, and the options of the command.

Nothing of it is stored: these pages are made each time the site is built, so they are never out of date.
"""

from __future__ import annotations

import os
import re
from html import escape
from inspect import cleandoc
from pathlib import Path, PurePosixPath
from typing import Any

import click
from mkdocs.structure.files import File, Files

import kbrl
from kbrl.cli import commands
from kbrl.cli.console import options_by_heading

ROOT = Path(__file__).parents[2]
# Pages from outside docs/, and where the site has them.
OUTSIDE = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "results/CLAIMS.md": "project/claims.md",
    "results/NOTES.md": "project/notes.md",
    "results/BEYOND.md": "project/beyond.md",
    "results/RIVALS.md": "project/rivals.md",
}
# Pages of the reference: title, what it is about, and the rooms of the package whose public names it has.
REFERENCE = {
    "data": ("Logs", "Transitions, and how they are read and checked.", ("data", "logs", "tables")),
    "learners": (
        "Learners",
        "Settings in, a model out. All of them have `fit`, `predict` and `q_values`.",
        ("learners", "settings", "choosing"),
    ),
    "model": ("Model", "What was learnt, as one record that never changes, and how it is saved.", ("model", "storage")),
    "trust": ("Judging", "Is a policy better than what was done, by how much, and how sure is that?", ("trust",)),
    "insight": ("Insight", "Why a model answers as it does, and how far to trust it.", ("insight", "report")),
    "mdp": ("Finite MDPs", "Records and solvers of finite Markov decision processes.", ("mdp",)),
    "more": ("Dask, testing, errors", "What is left.", ("on_dask", "testing", "checks")),
}
TASKS = ("PuddleWorld", "PoleBalancing", "HIV", "Epilepsy", "Helicopter", "from_gymnasium")
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List the decisions below their entry, in their order."""
    pages = [f"decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    _replace(config.nav, "decisions/index.md", ["decisions/index.md", *pages])
    return config


def _replace(entries: Any, page: str, pages: list[str]) -> None:
    """Put pages in the place of one, anywhere in the navigation."""
    for entry in entries:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            if below == page:
                entry[title] = pages
            elif isinstance(below, list):
                _replace(below, page, pages)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=_moved((ROOT / source).read_text("utf-8"), source, target)))
    for picture in sorted((ROOT / "results").glob("*.png")):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    for page, (title, about, rooms) in REFERENCE.items():
        files.append(File.generated(config, f"reference/{page}.md", content=_names_page(title, about, rooms)))
    files.append(File.generated(config, "decisions/index.md", content=_decisions_page()))
    files.append(File.generated(config, "reference/tasks.md", content=_tasks_page()))
    files.append(File.generated(config, "reference/command.md", content=command_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to files outside docs/ lead to where the site has them."""
    here = page.file.src_uri
    return markdown if here.startswith(("project/", "reference/")) else _moved(markdown, f"docs/{here}", here)


def _moved(text: str, source: str, target: str) -> str:
    """Return a page whose links are those of its place in the site."""

    def link(found: re.Match[str]) -> str:
        words, address, anchor = found[1], found[2], found[3] or ""
        if "://" in address or address.startswith("mailto:"):
            return found[0]
        path = os.path.normpath(PurePosixPath(source).parent / address)
        return f"{words}({os.path.relpath(_place(path), PurePosixPath(target).parent)}{anchor})"

    return _LINK.sub(link, text)


def _place(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path == "docs":
        return "index.md"
    if path == "docs/decisions":
        return "decisions/index.md"
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/")


def _decisions_page() -> str:
    lines = ["# Decisions", "", "Why things are as they are, one page per decision.", ""]
    for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ").replace(".", "\\.", 1)
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)


def _names_page(title: str, about: str, rooms: tuple[str, ...]) -> str:
    homes = {name: getattr(kbrl, name) for name in kbrl.__all__ if name != "__version__"}
    places = {name: found.__module__ for name, found in homes.items()}
    chosen = [name for name in kbrl.__all__ if name in places and places[name].split(".")[1] in rooms]
    return _reference(title, about, [f"{places[name]}.{name}" for name in chosen])


def _tasks_page() -> str:
    import kbrl.tasks as tasks

    about = "Simulators to learn in. `kbrl tasks` lists them; all are also Gymnasium environments `kbrl/...-v0`."
    return _reference("Tasks", about, [f"{getattr(tasks, name).__module__}.{name}" for name in TASKS])


def _reference(title: str, about: str, names: list[str]) -> str:
    return "\n".join([f"# {title}", "", about, "", *(f"::: {name}\n" for name in names)])


def command_page() -> str:
    """Return the page about the command: each subcommand with its help and its options."""
    lines = ["# The command", "", "Made from the command itself; `kbrl COMMAND --help` says the same.", ""]
    context = click.Context(commands, info_name="kbrl")
    lines += _options(commands, context)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=f"kbrl {name}")
        usage = " ".join(["kbrl", name, *command.collect_usage_pieces(inner)])
        lines += [f"## kbrl {name}", "", "```", usage, "```", "", *_help(command), *_options(command, inner)]
    return "\n".join(lines)


def _help(command: click.Command) -> list[str]:
    lines: list[str] = []
    for part in cleandoc(command.help or "").split("\n\n"):
        paragraph = " ".join(part.split())
        if part.startswith("\b"):  # as it stands
            lines += ["```", *part.splitlines()[1:], "```", ""]
        elif paragraph.startswith("Example: "):
            lines += ["```", paragraph.removeprefix("Example: "), "```", ""]
        else:
            lines += [_plain(paragraph), ""]
    return lines


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines = []
    for heading, rows in options_by_heading(command, context).items():
        table = [f"| `{name}` | {_plain(text)} |" for name, text in rows]  # a | within code does not end a cell
        lines += [f"| {heading} | |", "|---|---|", *table, ""] if rows else []
    return lines


def _plain(text: str) -> str:
    """Return text in which Markdown sees no markup."""
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", escape(text, quote=False))
