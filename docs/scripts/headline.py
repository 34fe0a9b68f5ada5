"""Write the headline results into the README, the home page and the page on trust, from the pages that runs have made.

python docs/scripts/headline.py           # writes them
python docs/scripts/headline.py --check   # only compares, and fails on a difference
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- headline: made by make pages -->\n", "<!-- end of headline -->"
TRUST, END_OF_TRUST = "<!-- trust: made by make pages -->\n", "<!-- end of trust -->"
PAGES = (ROOT / "README.md", ROOT / "docs/index.md", ROOT / "docs/trust.md")
SHOWN = ("CartPole", "Pendulum", "MountainCar", "Acrobot")


def table_below(page: str, heading: str) -> dict[str, dict[str, str]]:
    """Return the table below a heading as rows by their first cell, each by the names of the columns."""
    part = page[page.index(heading) :]
    lines = [line.strip("| \n") for line in re.findall(r"^\|.*\|$", part.split("\n## ")[0], flags=re.MULTILINE)]
    names = [cell.strip() for cell in lines[0].split("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    return {row[0]: dict(zip(names[1:], row[1:])) for row in rows}


def headline(to_docs: str) -> list[str]:
    """Return the results in Markdown; ``to_docs`` leads from the page to docs/."""
    power = (ROOT / "docs/power.md").read_text("utf-8")
    returns = table_below(power, "## Returns")
    seconds = table_below(power, "## CPU seconds of one fit")
    best = returns.pop("within 3% of the best")
    lines = ["| return from 20,000 random steps | random | kbrl fit | fitted Q | LSPI |", "|---|--:|--:|--:|--:|"]
    for task in SHOWN:
        row = returns[task]
        cells = [row[name].replace("+-", "±") for name in ("as logged", "kbrl fit", "fitted Q", "LSPI")]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    is_mean = any("+-" in row["kbrl fit"] for row in returns.values())
    shares = (best[name] for name in ("kbrl fit", "fitted Q", "LSPI"))
    lines += ["| tasks within 3 % of the best | | " + " | ".join(shares) + " |", ""]
    lines += [
        f"- **Return**: true returns{', mean ± standard error over logs' if is_mean else ' of one log each'}. "
        f"[All {len(returns)} tasks, and where others win]"
        f"({to_docs}power.md).",
        "  Made by `make figures ONLY=power`.",
        f"- **Time**: one fit of lines and plans takes {_range(seconds, 'order 1')} CPU seconds on these tasks, "
        "`kbrl fit` with all",
        f"  its choices {_range(seconds, 'kbrl fit')}, fitted Q with 30 extra-trees {_range(seconds, 'fitted Q')}."
        " Same command.",
        "- **Memory**: ten million rows (1.3 GB) with 500 representative states took 555 MB, in a fit with",
        "  all its choices. Measured by `python -m benchmarks --only files`.",
        *_trust_lines(to_docs),
    ]
    return lines


def _range(rows: dict[str, dict[str, str]], name: str) -> str:
    found = sorted(float(row[name]) for row in rows.values())
    return f"{found[0]:.2g} to {found[-1]:.2g}"


def _trust_lines(to_docs: str) -> list[str]:
    """Return how often judgements were right, as the study of judgements has it."""
    study = (ROOT / "docs/trust_study.md").read_text("utf-8")
    given = re.search(r"Of (\d+) judgements, (\d+) % gave no interval\. Of .*, (\d+) % hold the truth", study)
    wrong = re.search(
        r'(\d+) judgements are of policies that are not better: "better" was said of (\d+) of these', study
    )
    right = re.search(r"Of the (\d+) learnt policies of wide logs that are better, it was said of\s+(\d+) %", study)
    if given is None or wrong is None or right is None:
        raise ValueError("docs/trust_study.md no longer has the sentences below its table that the headline quotes.")
    text = (
        f"- **Trust**: the verdict was *better* for {wrong[2]} of {wrong[1]} policies that are not better, and for "
        f"{right[2]} % of {right[1]} better policies from logs with exploration. Of {given[1]} judgements, "
        f"{given[2]} % gave no interval; of the 95 % intervals that were given, {given[3]} % hold the truth. "
        f"[Where they fail]({to_docs}trust_study.md#how-often-it-is-right)."
    )
    lines = wrap(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [*lines, "  Made by `make figures ONLY=trust`."]


def renewed(path: Path) -> str:
    """Return a page with the results as they are now."""
    text = path.read_text("utf-8")
    to_docs = "docs/" if path.name == "README.md" else ""
    begin, end, lines = BEGIN, END, headline
    if path.name == "trust.md":
        begin, end, lines = TRUST, END_OF_TRUST, _trust_lines
    before, rest = text.split(begin)
    return before + begin + "\n".join(lines(to_docs)) + "\n" + end + rest.split(end)[1]


def main() -> None:
    """Write the results, or compare them."""
    stale = [path for path in PAGES if renewed(path) != path.read_text("utf-8")]
    print(f"{len(stale)} pages with other results", *stale, sep="\n")
    if "--check" in sys.argv:
        sys.exit(1 if stale else 0)
    for path in stale:
        path.write_text(renewed(path), "utf-8")


if __name__ == "__main__":
    main()
