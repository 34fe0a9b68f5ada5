"""Run the examples, and write each as a notebook with its outputs and as a page of the site.

    python docs/scripts/notebooks.py               # all of them
    python docs/scripts/notebooks.py --check ward  # only run, and compare what it prints

The source of an example is a Python file with cells, docs/examples/NAME.py: ``# %% [markdown]`` begins text, ``# %%``
begins code.  It is run in a Jupyter kernel, in an empty folder.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from fill_outputs import differences
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = ("ward", "gymnasium", "puddle_world")
_SECONDS = 300


def cells_of(source: str) -> list[tuple[str, str]]:
    """Return the cells of a source: (markdown or code, text)."""
    cells = []
    for kind, body in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", source, flags=re.DOTALL | re.MULTILINE):
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE) if kind else body
        cells.append(("markdown" if kind else "code", text.strip("\n")))
    return cells


def run(name: str) -> Any:
    """Return an example as a notebook that was run."""
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, (kind, text) in enumerate(cells_of((FOLDER / f"{name}.py").read_text("utf-8"))):
        cell = nbformat.v4.new_markdown_cell(text) if kind == "markdown" else nbformat.v4.new_code_cell(text)
        cell["id"] = f"cell-{number}"
        notebook.cells.append(cell)
    with tempfile.TemporaryDirectory() as folder:
        options = {"timeout": _SECONDS, "record_timing": False, "coalesce_streams": True}
        client = NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options)
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _is_worth_showing(output)]
    return notebook


def _is_worth_showing(output: Any) -> bool:
    """Leave out bars that were taken away, and warnings."""
    if output.output_type == "stream":
        return output.name == "stdout"
    data = output.get("data", {})
    return any(text for kind, text in data.items() if kind != "text/plain") or (
        "text/plain" in data and "text/html" not in data
    )


def page_of(name: str, notebook: Any) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook, and its pictures by their names."""
    note = f"*This page is a notebook: [{name}.ipynb]({name}.ipynb). Every output was made by running it.*"
    lines, pictures, has_note = [], {}, False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            title, _, rest = cell.source.partition("\n")
            lines += [cell.source, ""] if has_note else [title, "", note, rest, ""]
            has_note = True
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            if output.output_type == "stream":
                lines += ["```text", output.text.rstrip(), "```", ""]
            elif "image/png" in output.data:
                picture = f"{name}_{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(output.data["image/png"])
                lines += [f"![Made by the code above]({picture})", ""]
            elif "text/html" in output.data:
                lines += _folded_table(output.data["text/html"])
            else:
                lines += ["```text", output.data["text/plain"], "```", ""]
    return "\n".join(lines), pictures


def _folded_table(html: str) -> list[str]:
    """Return a table with one cell per line, so that lines are short."""
    folded = re.sub(r"(</td>|</th>|</tr>|</caption>)", r"\1\n", html)
    return ['<div class="shown">', *(part for line in folded.splitlines() for part in _parts(line)), "</div>", ""]


def _parts(line: str) -> list[str]:
    import textwrap

    return textwrap.wrap(line, 118, break_long_words=False, break_on_hyphens=False) or [""]


def write(name: str) -> None:
    """Run an example and write its notebook, its page and its pictures."""
    notebook = run(name)
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")
    page, pictures = page_of(name, notebook)
    (FOLDER / f"{name}.md").write_text(page, "utf-8")
    for old in FOLDER.glob(f"{name}_*.png"):
        old.unlink()
    for picture, content in pictures.items():
        (FOLDER / picture).write_bytes(content)


def stale(name: str) -> list[str]:
    """Return the lines of an example's page that are no longer true."""
    return differences((FOLDER / f"{name}.md").read_text("utf-8"), page_of(name, run(name))[0])


def main() -> None:
    """Write the examples, or check them."""
    parser = argparse.ArgumentParser(description="Run the examples.")
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("names", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    found = []
    for name in arguments.names:
        if arguments.check:
            found += stale(name)
        else:
            write(name)
        print(name, *found, sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
