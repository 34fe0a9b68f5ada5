"""How often judge is right: simulated logs whose truth is known (experiments/trust_worlds.py).

Each log has so many episodes under current practice.  Half of them, by a hash, teach KBSF; the others judge three
policies: the learnt one, another rule, and practice itself (where no variable is hidden).  Two methods judge, sums and
rehearsal, and their mean.  Truths are simulated.
Stated before the run: the rules are those of kbrl.trust with their defaults at 95 %; a log's seed is the job's seed,
cell and number; "covered" allows two standard errors of the simulated truth; a "better" is false if the true gain is
not above 0 by more than these.  Seeds that were used while the rules were made are not used here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv

from experiments.drawing import new_figure
from experiments.study import Job, Row, Settings, Verdict, generator, select
from experiments.trust_worlds import HIDDEN, NARROW, WORLDS, World, world
from kbrl import KBSF, PolicyEvaluator, split_episodes
from kbrl.files import written_beside
from kbrl.trust.judge import judge_all
from kbrl.trust.judgement import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Judging policies by logs whose truth is known"
PAGE = Path(__file__).parents[1] / "docs" / "trust_study.md"
START, END = "<!-- table: made by make figures ONLY=trust -->", "<!-- end of table -->"

CELLS = [(name, "wide") for name in WORLDS] + [(name, "narrow") for name in NARROW] + [(n, "hidden") for n in HIDDEN]
LEVEL = 0.95
LOGS_PER_JOB = 1
FIRST_SEED = 600  # those before were used while the rules were made, or in earlier tables
MARGIN = 2.0  # standard errors of a simulated truth
N_TRUTH_NOW = {"hiv": 1000}  # episodes behind the truth of practice; 8000 elsewhere


@dataclass(frozen=True)
class Size:
    """How much a scale runs: the number of jobs per cell, by episodes per log."""

    n_jobs: dict[int, int]
    logs_per_job: int = LOGS_PER_JOB


SIZES = {
    "smoke": Size({120: 1}, logs_per_job=1),
    "laptop": Size({200: 20, 1000: 10}),
    "paper": Size({200: 200, 1000: 100}),
}


def jobs(scale: str) -> list[Job]:
    """Some logs of each cell per job."""
    size = SIZES[scale]
    return [
        Job({"world": name, "variant": variant, "n": n, "logs": size.logs_per_job}, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + max(size.n_jobs.values()))
        for n, n_jobs in size.n_jobs.items()
        for name, variant in CELLS
        if seed < FIRST_SEED + n_jobs
    ]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Simulate logs, learn, judge, and compare with the truth: one row per log and policy."""
    name, variant, n = settings["world"], settings["variant"], settings["n"]
    there = world(name, variant)
    now = there.truth(None, generator(zlib.crc32(name.encode())), N_TRUTH_NOW.get(name, 8000))
    cell = zlib.crc32(f"{name} {variant} {n}".encode())
    for number in range(settings["logs"]):
        rng = generator(seed, number, cell)
        yield from (row | {"log": number} for row in _one_log(there, variant, n, now, rng))


def _one_log(there: World, variant: str, n: int, now: tuple[float, float], rng: np.random.Generator) -> Iterator[Row]:
    learn, rest = split_episodes(there.collect(n, rng), 0.5)
    seed = int(rng.integers(2**31))
    model = KBSF(100, sample_width=0.3, rep_width=0.3, discount=there.discount, random_state=seed).fit(learn).model_
    policies: dict[str, Any] = {"learnt": model.predict, "other": there.worse}
    if variant != "hidden":
        policies["practice"] = there.practice_probabilities
    evaluator = PolicyEvaluator(policies, discount=there.discount).fit(rest)
    for (policy, decide), found in zip(policies.items(), judge_all(evaluator, rest, LEVEL)):
        truth = now if policy == "practice" else there.truth(decide, rng)
        yield {
            "policy": policy,
            "truth": truth[0],
            "truth_error": truth[1],
            "now": now[0],
            "now_error": now[1],
            "spread": _spread(evaluator),
            "value": [found.value.estimate, found.value.low, found.value.high],
            "gain": [found.gain.estimate, found.gain.low, found.gain.high],
            "by_sums": _of_method(found.by_sums),
            "by_rehearsal": _of_method(found.by_rehearsal),
            "is_bounded": found.is_bounded,
            "far": found.far_share,
            "parts": [found.gain.sampling, found.gain.smoothing, found.gain.self_check],
            "verdict": found.verdict,
            "thin": found.thin_share,
            "memory": found.memory,
            "lasting": found.lasting,
            "n_refusals": len(found.refusals),
        }


def _of_method(found: Estimate | None) -> list[list[float]] | None:
    """Return estimate, low and high of value and gain."""
    return None if found is None else [[each.estimate, each.low, each.high] for each in (found.value, found.gain)]


def _spread(evaluator: PolicyEvaluator) -> float:
    """Return the standard deviation of the logged returns."""
    sums = evaluator.sums
    assert sums is not None
    n = float(sums.n_episodes.sum())
    return float(np.sqrt(max(0.0, sums.squared_returns.sum() / n - (sums.returns.sum() / n) ** 2)))


@dataclass(frozen=True)
class Cell:
    """What the logs of one cell say about one policy; shares in percent, nan where there is nothing to count."""

    n_logs: int
    no_interval: float  # of the logs: the data do not bound the value
    covered: float  # of the intervals that are given
    by_sums: float  # coverage of the intervals by sums alone, in the same logs
    by_rehearsal: float  # and by rehearsal alone
    length: float  # median length of the interval of the value, in standard deviations of the return
    length_by_sums: float
    said_better: float  # of the logs in which it is truly better
    false_better: float  # of the logs in which it is not
    n_not_better: int

    @classmethod
    def of(cls, rows: list[Row]) -> Cell:
        """Summarize the rows of one cell and policy."""
        given = [row for row in rows if row["is_bounded"]]
        both = [row for row in given if row["by_rehearsal"] is not None and row["by_sums"] is not None]
        is_better = _is_better(rows)
        said = np.array([row["verdict"] == "better" for row in rows])
        return cls(
            n_logs=len(rows),
            no_interval=_percent([not row["is_bounded"] for row in rows]),
            covered=_covered(given, [row["value"] for row in given]),
            by_sums=_covered(both, [row["by_sums"][0] for row in both]),
            by_rehearsal=_covered(both, [row["by_rehearsal"][0] for row in both]),
            length=_length(given, [row["value"] for row in given]),
            length_by_sums=_length(both, [row["by_sums"][0] for row in both]),
            said_better=_percent(said[is_better]),
            false_better=_percent(said[~is_better]),
            n_not_better=int((~is_better).sum()),
        )


def _covered(rows: list[Row], intervals: list[list[float]]) -> float:
    """Return the share of intervals, each estimate, low and high, that hold the truth, up to its error."""
    slack = [MARGIN * row["truth_error"] for row in rows]
    pairs = zip(rows, intervals, slack)
    return _percent([low - room <= row["truth"] <= high + room for row, (_, low, high), room in pairs])


def _length(rows: list[Row], intervals: list[list[float]]) -> float:
    """Return the median length of intervals, in standard deviations of the return."""
    found = [(high - low) / max(row["spread"], 1e-12) for row, (_, low, high) in zip(rows, intervals)]
    return float(np.median(found)) if found else float("nan")


def _is_better(rows: list[Row]) -> Any:
    gains = np.array([row["truth"] - row["now"] for row in rows])
    errors = np.array([np.hypot(row["truth_error"], row["now_error"]) for row in rows])
    return (gains > MARGIN * errors) & np.array([row["policy"] != "practice" for row in rows])


def _percent(found: Any) -> float:
    return 100.0 * float(np.mean(found)) if len(found) else float("nan")


def write_page(rows: list[Row]) -> None:
    """Put the table into docs/trust_study.md, between its two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(START)], text[text.index(END) :]
    with written_beside(PAGE) as beside:
        Path(beside).write_text(f"{before}{START}\n\n{table(rows)}\n\n{after}", encoding="utf-8")


def table(rows: list[Row]) -> str:
    """Return one line per log and policy, as Markdown."""
    heads = ("covered %", "sums %", "rehearsal %", "length", "by sums", "if better %", "if not %")
    lines = [f"| log | n | policy | logs | none % | {' | '.join(heads)} |", "|---|--:|---|" + "--:|" * 9]
    for variant in ("wide", "narrow", "hidden"):
        for name in WORLDS:
            for n in sorted({row["n"] for row in rows}):
                for policy in ("learnt", "other", "practice"):
                    some = select(rows, world=name, variant=variant, n=n, policy=policy)
                    if some:
                        lines.append(_line(f"{name}, {variant}", n, policy, Cell.of(some)))
    return "\n".join([*lines, "", _pooled(rows)])


def _line(log: str, n: int, policy: str, cell: Cell) -> str:
    shares = [cell.no_interval, cell.covered, cell.by_sums, cell.by_rehearsal]
    lengths = ["-" if np.isnan(x) else f"{x:.2f}" for x in (cell.length, cell.length_by_sums)]
    numbers = [*map(_shown, shares), *lengths, _shown(cell.said_better), _shown(cell.false_better)]
    return f"| {log} | {n} | {policy} | {cell.n_logs} | {' | '.join(numbers)} |"


def _shown(share: float) -> str:
    return "-" if np.isnan(share) else f"{share:.0f}"


def _pooled(rows: list[Row]) -> str:
    whole, wide = Cell.of(rows), select(rows, policy="learnt", variant="wide")
    lines = [
        f"Of {whole.n_logs} judgements, {whole.no_interval:.0f} % gave no interval. Of the intervals that were given, "
        f"{_shown(whole.covered)} % hold the truth;",
        f"in the same logs, {_shown(whole.by_sums)} % of those by sums alone and {_shown(whole.by_rehearsal)} % of "
        f"those by rehearsal alone do.",
        f'{whole.n_not_better} judgements are of policies that are not better: "better" was said of '
        f"{round(whole.false_better / 100 * whole.n_not_better) if whole.n_not_better else 0} of these.",
    ]
    if wide:
        cell = Cell.of(wide)
        n_better = cell.n_logs - cell.n_not_better
        lines.append(
            f"Of the {n_better} learnt policies of wide logs that are better, it was said of "
            f"{_shown(cell.said_better)} %."
        )
    return "\n".join(lines)


def draw(rows: list[Row]) -> Figure:
    """Draw the coverage of each cell, with 95 % intervals for so few logs (Clopper and Pearson)."""
    figure, axes = new_figure(1, 1, width=6.4, height=6.6)
    plot = np.ravel(axes)[0]
    names = sorted({(row["variant"], row["world"], row["n"]) for row in rows}, reverse=True)
    for policy, marker, shift in (("learnt", "o", 0.25), ("other", "s", 0.0), ("practice", "^", -0.25)):
        color = {"learnt": "C0", "other": "C1", "practice": "C2"}[policy]
        for place, (variant, name, n) in enumerate(names):
            found = select(rows, variant=variant, world=name, n=n, policy=policy)
            n_given = sum(row["is_bounded"] for row in found)
            if n_given:
                covered = Cell.of(found).covered
                low, high = _likely(round(covered / 100 * n_given), n_given)
                bars = [[covered - 100 * low], [100 * high - covered]]
                plot.errorbar(covered, place + shift, xerr=bars, fmt=marker, color=color, markersize=4, elinewidth=0.8)
        plot.plot([], [], marker, color=color, label=policy)
    plot.axvline(100 * LEVEL, color="gray", linewidth=0.8)
    plot.set(yticks=range(len(names)), yticklabels=[f"{w}, {v}, {n}" for v, w, n in names])
    plot.set(xlabel="intervals that hold the truth (%); lines: what so few logs cannot tell apart")
    plot.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncol=3)
    return figure


def _likely(n_covered: int, n: int) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson, at 95 %, for a share of which n_covered of n were seen."""
    low = betaincinv(n_covered, n - n_covered + 1, 0.025) if n_covered else 0.0
    high = betaincinv(n_covered + 1, n - n_covered, 0.975) if n_covered < n else 1.0
    return float(low), float(high)


def verdicts(rows: list[Row]) -> list[Verdict]:
    """The paper claims nothing about judging."""
    return []
