"""The paper's claims that an experiment can confirm or refute, and the pages about what became of them.

CLAIMS.md has a picture and a table with short cells; NOTES.md has, claim by claim, the limits and intervals that decide
and what else was tried.  What must be so for a claim to hold stands here, before any run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from experiments.needs import Left
from experiments.rule import RULE, Finding
from experiments.study import Verdict, not_run
from kbrl.files import written_beside


class Claim(NamedTuple):
    """One statement of the paper."""

    section: str
    text: str
    paper: str  # its figure
    holds_if: str  # by 99 % intervals
    figure: str  # the file that tests it


CLAIMS = {
    "PW1": Claim(
        "4.3.1", "KBSF(8000, 100) performs like KBRL(8000)", "equal curves", "difference within 0.16", "puddle"
    ),
    "PW2": Claim(
        "4.3.1",
        "KBSF improves with m, from 10 to 150",
        "rising curve",
        "gain above 0, and rank correlation with m above 0",
        "puddle",
    ),
    "PW3": Claim(
        "4.3.1",
        "KBSF(8000, 100) needs far less work than KBRL(8000)",
        "99.58 % less",
        "99.08 to 100.08 % less time",
        "puddle",
    ),
    "PW4": Claim("4.3.1", "both improve with n", "rising curves", "both gains above 0", "puddle"),
    "PW5": Claim(
        "4.3.1",
        "KBSF's time is linear in n, KBRL's grows with n^2 n_hat",
        "slopes 1 and over 2",
        "KBSF's slope 0.8 to 1.2, KBRL's above 2",
        "puddle",
    ),
    "PW6": Claim(
        "6.2",
        "KBRL(8000) over the widths 1, 0.1, 0.01",
        "1.47 +- 0.42, 3.01 +- 0.08, 3.00 +- 0.08",
        "each mean within the paper's interval",
        "puddle",
    ),
    "PO1": Claim("4.3.2", "KBSF balances one pole with m = 30", "about 90 %", "rate above 0.85", "poles"),
    "PO2": Claim("4.3.2", "LSPI on one pole, same data and features", "at most 60 %", "both forms below 0.60", "poles"),
    "PO3": Claim("4.3.2", "KBSF(10^6, 200) balances two poles", "over 80 %", "rate above 0.80", "poles"),
    "PO4": Claim(
        "4.3.2",
        "KBSF(10^6, 200) takes minutes where KBRL would take months",
        "under 7 min; over 6 months",
        "KBSF under 420 s, and ratio above 37 029",
        "poles",
    ),
    "PO5": Claim("4.3.2", "KBSF is faster than LSPI at equal m", "faster", "every ratio above 1", "poles"),
    "HI1": Claim("4.3.3", "FQIT improves as eta_min falls: 200, 100, 50", "improves", "both gains above 0", "hiv"),
    "HI2": Claim(
        "4.3.3",
        "m has little effect on KBSF; one KBSF does not reach FQIT(50)",
        "below FQIT(50)",
        "m = 10 000 within a factor of 1.25 of 2000, and all below FQIT(50)",
        "hiv",
    ),
    "HI3": Claim(
        "4.3.3", "KBSF(10000) is faster than FQIT(100) and FQIT(50)", "15 and 20 times", "ratios above 15 and 20", "hiv"
    ),
    "HI4": Claim(
        "4.3.3",
        "a committee of 5 matches FQIT(50), one of 15 clearly exceeds it",
        "exceeds",
        "5 members above 0.8 FQIT(50), 15 above the best FQIT",
        "hiv",
    ),
    "HI5": Claim("4.3.3", "a committee of 30 is still faster than FQIT(200)", "faster", "ratio above 1", "hiv"),
    "EP1": Claim(
        "4.3.4",
        "KBSF and FQIT(20) find policies better than 1 Hz",
        "better",
        "at one penalty both have fewer seizures and fewer pulses",
        "epilepsy",
    ),
    "EP2": Claim(
        "4.3.4",
        "LSPI and FQIT(200) are no advance over fixed frequencies",
        "no advance",
        "each has more seizures or pulses than each fixed frequency",
        "epilepsy",
    ),
    "EP3": Claim("4.3.4", "KBSF is much faster than FQIT(20)", "at least 100 times", "ratio above 100", "epilepsy"),
    "IN1": Claim(
        "5.2.1",
        "the final policy is the same for every t_m = t_v",
        "the same",
        "models and returns agree to 1e-9",
        "incremental",
    ),
    "IN2": Claim(
        "5.2.1",
        "splitting the data costs only a small overhead",
        "small",
        "below 1.5 times the batch at 4000, 2000, 1000",
        "incremental",
    ),
    "TP1": Claim(
        "5.2.2", "iKBSF with 10^7 transitions balances three poles", "about 80 %", "rate above 0.75", "triple_pole"
    ),
    "TP2": Claim(
        "5.2.2", "batch KBSF and FQIT with 10^6 transitions", "below 55 %", "all rates below 0.55", "triple_pole"
    ),
    "TP3": Claim(
        "5.2.2",
        "iKBSF on 10^7 is faster than FQIT(1000) on 10^6 transitions",
        "20 against 78 min",
        "iKBSF's time below FQIT's",
        "triple_pole",
    ),
    "TP4": Claim(
        "5.2.2",
        "iKBSF's memory against batch KBSF's",
        "under 0.03 GB, about 2 GB",
        "below 30 MB, and batch above 1 GB",
        "triple_pole",
    ),
    "TP5": Claim(
        "5.2.2",
        "with 10 batches FQIT(10000) gets worse, FQIT(1000) better, still under iKBSF",
        "worse, better",
        "gain of FQIT(10000) below 0, of FQIT(1000) above 0, and below iKBSF",
        "triple_pole",
    ),
    "TP6": Claim(
        "5.2.2",
        "m grows fast at first, then levels off",
        "levels off",
        "last three batches bring under 0.25 of the first three",
        "triple_pole",
    ),
    "HE1": Claim(
        "5.2.3",
        "after 70 000 episodes KBSF flies longer than SARSA",
        "about 2.25 times",
        "KBSF's steps above 2 times SARSA's",
        "helicopter",
    ),
    "HE2": Claim(
        "5.2.3",
        "episodes get longer when epsilon is lowered",
        "jumps",
        "growth there above growth elsewhere, for both",
        "helicopter",
    ),
    "HE3": Claim(
        "5.2.3",
        "KBSF's time a step settles near SARSA's",
        "slightly above",
        "KBSF's cost below 1.5 times SARSA's",
        "helicopter",
    ),
    "TH1": Claim(
        "3.2", "the value error is within xi_v (proposition 1)", "never above", "no error above its bound", "theory"
    ),
    "TH2": Claim(
        "4.2",
        "the error of Q(s, a) is within gamma xi_v (proposition 2)",
        "never above",
        "no error above its bound",
        "theory",
    ),
    "TH3": Claim(
        "4.2",
        "xi_v goes to 0 with denser states and smaller tau-bar (proposition 3)",
        "to 0",
        "falls at each step, to under 0.001 of the first",
        "theory",
    ),
    "TH4": Claim(
        "5.1",
        "the on-line error is within its bound (proposition 4)",
        "never above",
        "no error above its bound",
        "theory",
    ),
    "TH5": Claim(
        "A.3",
        "the alternative bound holds for any norm (proposition 5)",
        "holds",
        "no error above its bound in all three norms",
        "theory",
    ),
}

_STRESSED = (Finding.FAILS, Finding.UNDECIDED)
ENOUGH, ENOUGH_TREES = 30, 10  # runs that a verdict should rest on; the second where fitted Q is in it
# Claims about fitted Q, whose runs take minutes.
WITH_TREES = ("HI1", "HI2", "HI3", "HI4", "HI5", "EP1", "EP2", "EP3", "TP2", "TP3", "TP5")
# Rules that were changed after their figures had been seen: what was, and why not any more.
OLD_RULES = (
    "Until November 2026 a claim was judged by means, or by one run, also where the interval contained the limit.",
    "Then success rates had Student's intervals, or Hoeffding's where the runs spread less than 0.01. In simulations "
    "of 30 runs on 81 test states (beta-binomial: rates 0.05 to 0.97, correlations within a run 0.02 to 0.95) "
    "Student's 99 % interval missed the true rate in up to 38 % of the studies, the present one in less than 1 %. "
    "Limits did not change. PO1, PO2, PO3, TP1, TP2 and TP5 are judged by success rates.",
    "TP2 took each timed run of FQIT(1000) for a figure of its own, which one run can never decide. Now they are runs "
    "of one figure. With the one timed run that there is, nothing changes.",
    "PW1 was judged by overlapping intervals, PW3 by operations as well as time, TP4 by small slices: docs/study.md.",
)


def write_claims(
    folder: Path, verdicts: dict[str, tuple[str, Verdict]], left: Mapping[str, Left] | None = None
) -> None:
    """Write CLAIMS.md and NOTES.md.

    ``verdicts`` has, for each claim's id, the scale of its runs and the verdict.  ``left`` has what the paper's scale
    has to run: for each id until the claim has enough runs, and for each figure in all.
    """
    unknown = set(verdicts) - set(CLAIMS)
    if unknown:
        raise ValueError(f"No claim of the paper has the id {', '.join(sorted(unknown))}.")
    pages = {"CLAIMS.md": _table(verdicts), "NOTES.md": _notes(verdicts, left or {})}
    for name, lines in pages.items():
        with written_beside(folder / name) as beside:
            Path(beside).write_text("\n".join(map(_wrapped, lines)), encoding="utf-8")


def _wrapped(line: str) -> str:
    """Break prose into lines of at most 120 characters; tables cannot be broken."""
    indent = "  " if line.startswith("- ") else ""
    return (
        line if line.startswith("|") else "\n".join(wrap(line, 120, subsequent_indent=indent, break_on_hyphens=False))
    )


def _table(verdicts: dict[str, tuple[str, Verdict]]) -> list[str]:
    return [
        "# The paper's claims, and what our runs say",
        "",
        f"{len(CLAIMS)} claims. {counted(verdicts).capitalize()}. Generated by `make figures`; do not edit.",
        "",
        "![All claims in one picture: how far each figure is from its limit](claims.png)",
        "",
        "In the picture, 0 is the limit beyond which a claim holds. A figure's distance from it is in half widths of "
        "its 99 % interval. A claim of several parts is shown by the part that decides. Diamonds: the paper's figures. "
        "Claims that are computed without chance have no interval.",
        "",
        RULE,
        "",
        "Limits and intervals, other readings and deviations: [NOTES.md](NOTES.md). Repeat a line by `make figures "
        "ONLY=FILE SCALE=SCALE`. Rows: `rows/`.",
        "",
        "| id | claim | the paper | holds if (99 %) | ours | runs | verdict | file, scale |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(name, verdicts.get(name)) for name in CLAIMS),
        "",
    ]


def _line(name: str, found: tuple[str, Verdict] | None) -> str:
    claim = CLAIMS[name]
    scale, verdict = found if found else ("", not_run(name, ""))
    word = verdict.finding.value
    cells = (
        name,
        claim.text,
        claim.paper,
        claim.holds_if,
        verdict.ours,
        str(verdict.n_runs),
        f"**{word}**" if verdict.finding in _STRESSED else word,
        f"{claim.figure}, {scale or 'none'}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _notes(verdicts: dict[str, tuple[str, Verdict]], left: Mapping[str, Left]) -> list[str]:
    lines = [
        "# Notes on the claims",
        "",
        "Generated by `make figures`; do not edit. The table is [CLAIMS.md](CLAIMS.md).",
        "",
    ]
    lines += [
        RULE,
        "",
        "## Rules that were changed",
        "",
        *(f"- {rule}" for rule in OLD_RULES),
        "",
        *_still_to_run(verdicts, left),
        "## Claim by claim",
        "",
    ]
    for name in [name for name in CLAIMS if name in verdicts]:
        _, verdict = verdicts[name]
        lines += [
            f"### {name}: {verdict.finding.value}",
            "",
            f"{CLAIMS[name].text} (section {CLAIMS[name].section}).",
            "",
        ]
        judged = f"Judged: {verdict.judged}." if verdict.judged else ""
        lines += [" ".join(filter(None, (judged, verdict.note, _too_few(name, verdict, left.get(name))))), ""]
    return lines


def enough_runs(name: str) -> int:
    """Return how many runs the verdict on a claim should rest on."""
    return ENOUGH_TREES if name in WITH_TREES else ENOUGH


def _has_too_few(name: str, verdict: Verdict) -> bool:
    return verdict.judged is not None and verdict.n_runs < enough_runs(name)


def _still_to_run(verdicts: dict[str, tuple[str, Verdict]], left: Mapping[str, Left]) -> list[str]:
    """List the claims with too few runs, and what they wait for."""
    few = [name for name in CLAIMS if name in verdicts and name in left and _has_too_few(name, verdicts[name][1])]
    if not few:
        return []
    lines = [
        "## Verdicts from few runs",
        "",
        f"A verdict should rest on {ENOUGH} runs, or {ENOUGH_TREES} where fitted Q is in it. These do not yet: there "
        "was not enough time. Jobs and hours are what the paper's scale has to run until then, on one core, or on a "
        "free machine where times are compared; several claims can rest on the same job. `python -m experiments "
        "--scale paper --claim ID --runs RUNS` continues.",
        "",
        "| id | verdict | runs, scale | wanted | jobs left | hours left |",
        "|---|---|---|---|---|---|",
    ]
    for name in few:
        scale, verdict = verdicts[name]
        jobs, hours = left[name].n_jobs, left[name].seconds / 3600
        cells = (name, verdict.finding.value, f"{verdict.n_runs}, {scale}", enough_runs(name), jobs, f"{hours:.1f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    figures = dict.fromkeys(claim.figure for claim in CLAIMS.values() if claim.figure in left)
    listed = (f"{figure} {left[figure].n_jobs} jobs, {left[figure].seconds / 3600:.1f} hours" for figure in figures)
    return [*lines, "", f"All runs of the paper's scale that are left: {'; '.join(listed)}.", ""]


def _too_few(name: str, verdict: Verdict, left: Left | None) -> str:
    """Say why a verdict rests on few runs."""
    if not _has_too_few(name, verdict):
        return ""
    few = f"The figure with fewest runs has {verdict.n_runs}, not {enough_runs(name)}"
    if left is None:
        return f"{few}."
    if left.n_jobs == 0:
        return f"{few}: the paper's scale has no more."
    return (
        f"{few}: {left.n_jobs} jobs of the paper's scale, about {left.seconds / 3600:.1f} hours, are still to be run."
    )


def counted(verdicts: dict[str, tuple[str, Verdict]]) -> str:
    """Return how many claims hold, do not, are undecided or were not run."""
    words = [verdicts[name][1].finding if name in verdicts else Finding.NOT_RUN for name in CLAIMS]
    return ", ".join(f"{finding.value}: {words.count(finding)}" for finding in Finding if finding in words)
