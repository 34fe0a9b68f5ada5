"""Epilepsy suppression: KBSF, LSPI and FQIT against pulses at fixed frequencies.

Paper: section 4.3.4: 500 000 random transitions, m = 50 000, 6 neighbours (LSPI: m = 50), tau 1, tau-bar the best of
three, penalties of 10, 20, 40 for a seizure and 1 for a pulse, judged over 10^5 decisions from ten states, 50 runs.
Two sources: a SUBSTITUTE simulated with the Epileptor, and recordings, if KBRL_RECORDINGS names their folder.
Deviations at laptop scale: 50 000 transitions and m = 5000 for all methods, 20 000 decisions, few runs; one job of KBSF
has the paper's sizes.  States are divided by standard deviations, or not (both are run: the paper does not say).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import FEWEST, STYLES, new_figure
from experiments.rule import All, OneOf, Sampled, gap
from experiments.study import (
    Job,
    Row,
    Settings,
    Verdict,
    distinct,
    generator,
    interval,
    measured,
    not_run,
    select,
    timing,
)
from kbrl import KBSF, LSPI, FittedQ, Transitions
from kbrl.tasks import Epilepsy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Epilepsy suppression: seizures against pulses"

FREQUENCIES = (0.0, 0.5, 1.0, 1.5, 2.0)  # Hz
PENALTIES = (10.0, 20.0, 40.0)
TAU, TAU_BARS, NEIGHBORS, LSPI_M = 1.0, (0.01, 0.1, 1.0), 6, 50
MIN_SPLITS = (20, 200)
FASTER = 100  # so many times is KBSF than FQIT(20), at least
SCALINGS: dict[str, Any] = {"divided": "std", "raw": None}
SOURCES = ("substitute", "recordings")
FOLDER = "KBRL_RECORDINGS"
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"n": 2000, "m": 200, "steps": 200, "runs": 1, "large": 0, "trees": 1, "penalties": (40.0,)},
    "laptop": {"n": 50_000, "m": 5000, "steps": 20_000, "runs": 4, "large": 1, "trees": 1, "penalties": (10.0, 40.0)},
    "paper": {"n": 500_000, "m": 50_000, "steps": 100_000, "runs": 50, "large": 0, "trees": 10, "penalties": PENALTIES},
}
LARGE = {"n": 500_000, "m": 50_000}


def jobs(scale: str) -> list[Job]:
    """Fixed frequencies, KBSF and LSPI side by side; FQIT, and KBSF for its time, alone."""
    size, found = SIZES[scale], []
    hint = 400 if scale == "paper" else 50
    for source in SOURCES[:1] if scale == "smoke" else SOURCES:
        about = {"source": source, "size": scale}
        needs = FOLDER if source == "recordings" else ""
        found.append(Job(about | {"part": "fixed"}, 0, needs=needs))
        found += [Job(about | {"part": "large"}, seed, needs=needs) for seed in range(size["large"])]
        # The substitute is not the paper's: a few runs of it are enough.
        n_runs = min(size["runs"], 10) if source == "substitute" else size["runs"]
        for penalty in size["penalties"]:
            kernels, trees = (about | {"penalty": penalty, "part": part} for part in ("kernels", "trees"))
            found += [Job(kernels, seed, seconds=hint, needs=needs) for seed in range(n_runs)]
            found += [Job(trees, seed, True, hint, needs) for seed in range(size["trees"])]
    return found


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Learn from one log of random pulses; judge by the fractions of seizures and of pulses."""
    size = SIZES[settings["size"]]
    recordings = os.environ[FOLDER] if settings["source"] == "recordings" else None
    task = Epilepsy(recordings, seizure_penalty=settings.get("penalty", max(PENALTIES)))
    if settings["part"] == "fixed":
        for hz in FREQUENCIES:
            yield {"method": "fixed", "hz": hz} | _judged(task, task.fixed_frequency(hz), size["steps"])
        return
    if settings["part"] == "large":
        log = task.collect(LARGE["n"], random_state=generator(seed))
        for scaling, tau_bar in (("divided", 1.0), ("raw", 0.01), ("raw", 1.0)):
            about = {"method": "KBSF", "scaling": scaling, "tau_bar": tau_bar, "penalty": max(PENALTIES)}
            yield about | _learnt(task, _kbsf(LARGE["m"], scaling, tau_bar, seed), log, size["steps"])
        return
    log = task.collect(size["n"], random_state=generator(seed))
    _kbsf(20, "raw", 1.0, seed).fit(log[:500])  # compile
    for about, learner in _learners(settings["part"], size["m"], seed, settings["size"]):
        yield about | _learnt(task, learner, log, size["steps"])


def _learners(part: str, m: int, seed: int, size: str) -> Iterator[tuple[Row, Any]]:
    few: dict[str, Any] = {"n_trees": 3, "n_iterations": 12} if size == "smoke" else {}
    if part == "trees":
        yield {"method": "KBSF", "scaling": "raw", "tau_bar": 1.0, "timed": True}, _kbsf(m, "raw", 1.0, seed)
        for eta in MIN_SPLITS:
            yield {"method": "FQIT", "eta": eta}, FittedQ(min_split=eta, random_state=seed, **few, min_cases=1)
        return
    for scaling in SCALINGS:
        for tau_bar in TAU_BARS:
            about = {"scaling": scaling, "tau_bar": tau_bar}
            yield about | {"method": "KBSF"}, _kbsf(m, scaling, tau_bar, seed)
            lspi = LSPI(LSPI_M, "k-means", tau_bar, scaling=SCALINGS[scaling], random_state=seed, **RAW, min_cases=1)
            yield about | {"method": "LSPI"}, lspi


RAW: dict[str, Any] = {"features": "raw", "ridge": 0, "neighbors": NEIGHBORS}  # the paper's features


def _kbsf(m: int, scaling: str, tau_bar: float, seed: int) -> KBSF:
    return KBSF(
        m,
        sample_width=TAU,
        rep_width=tau_bar,
        sample_neighbors=NEIGHBORS,
        rep_neighbors=NEIGHBORS,
        scaling=SCALINGS[scaling],
        random_state=seed,
        min_cases=1,
        order=0,
    )


def _learnt(task: Epilepsy, learner: Any, log: Transitions, n_steps: int) -> Row:
    with timing() as timer:
        learner.fit(log)
    return _judged(task, learner.policy(), n_steps) | {"seconds": timer.seconds, "cpu_seconds": timer.cpu_seconds}


def _judged(task: Epilepsy, policy: Any, n_steps: int) -> Row:
    found = task.evaluate_fractions(policy, random_state=0, max_steps=n_steps)
    return {"seizures": float(found.seizures.mean()), "pulses": float(found.pulses.mean())}


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw seizures against pulses for each source, and the times of fits."""
    sources = distinct(rows, "source")
    figure, panels = new_figure(1, len(sources) + 1, width=5.2, height=4.2)
    for axes, source in zip(panels[0], reversed(sources)):
        _draw_fractions(axes, select(rows, source=source))
        kind = "SUBSTITUTE simulated with the Epileptor" if source == "substitute" else "recordings of brain slices"
        axes.set(title=kind, xlabel="fraction of decisions that are pulses", ylabel="fraction of seizures")
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=3)
    _draw_times(panels[0, -1], rows)
    return figure


def _draw_fractions(axes: Axes, rows: list[Row]) -> None:
    fixed = sorted(select(rows, method="fixed"), key=lambda row: float(row["hz"]))
    pulses, seizures = ([row[name] for row in fixed] for name in ("pulses", "seizures"))
    axes.plot(pulses, seizures, "k-o", markersize=4, linewidth=0.8, label="fixed frequency")
    for row in fixed:
        axes.annotate(
            f"{row['hz']:g} Hz", (row["pulses"], row["seizures"]), fontsize=7, xytext=(4, 4), textcoords="offset points"
        )
    places = [(row["pulses"], row["seizures"]) for row in fixed]
    for label, group in _groups(rows).items():
        (x, x_half, n), (y, y_half, _) = interval(group, "pulses"), interval(group, "seizures")
        places.append((x, y))
        color, marker = STYLES[group[0]["method"]]
        filled = color if group[0].get("scaling") != "divided" and group[0].get("eta") != max(MIN_SPLITS) else "none"
        first = label.rsplit(",", 1)[0]
        is_new = first not in axes.get_legend_handles_labels()[1]
        marker, size = ("*", 9) if group[0]["part"] == "large" else (marker, 6)
        style: dict[str, Any] = {"color": color, "markersize": size, "markerfacecolor": filled, "linestyle": ""}
        axes.plot(x, y, marker=marker, label=first if is_new else None, **style)
        axes.annotate(
            f"{group[0]['penalty']:g}", (x, y), fontsize=6, xytext=(4, -7), textcoords="offset points", color=color
        )
        if n >= FEWEST:
            places += [(x + side * x_half, y + side * y_half) for side in (-1, 1)]
            axes.fill_between([x - x_half, x + x_half], y - y_half, y + y_half, color=color, alpha=0.12, linewidth=0)
    (left, right), (bottom, top) = ([end(place[axis] for place in places) for end in (min, max)] for axis in (0, 1))
    axes.set(xlim=(min(left, 0.0) - 0.03 * right, 1.12 * right), ylim=(min(bottom, 0.0), 1.12 * top))


def _groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the runs of each method and penalty; of kernels those at the tau-bar that costs least on average."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["method"] == "fixed" or row.get("timed"):
            continue
        sizes = " at the paper's sizes" if row["part"] == "large" else ""
        name = f"FQIT({row['eta']})" if row["method"] == "FQIT" else f"{row['method']}, {row['scaling']}{sizes}"
        groups.setdefault(f"{name}, {row['penalty']:g}", []).append(row)
    return {name: _cheapest(group) for name, group in sorted(groups.items())}


def _cheapest(rows: list[Row]) -> list[Row]:
    widths = distinct(rows, "tau_bar")
    if not widths:
        return rows
    cost = {width: _cost(select(rows, tau_bar=width)) for width in widths}
    return select(rows, tau_bar=min(cost, key=lambda width: cost[width]))


def _cost(rows: list[Row]) -> float:
    return float(np.mean([row["penalty"] * row["seizures"] + row["pulses"] for row in rows]))


def _draw_times(axes: Axes, rows: list[Row]) -> None:
    groups = {"KBSF": [row for row in rows if row.get("timed")], "LSPI": select(rows, method="LSPI")}
    groups |= {f"FQIT({eta})": select(rows, method="FQIT", eta=eta) for eta in MIN_SPLITS}
    for place, (name, group) in enumerate(groups.items()):
        if group:
            height = float(np.mean([row["seconds"] for row in group]))
            axes.bar(place, height, color=STYLES[name.split("(")[0]][0])
            axes.annotate(f"{height:.1f} s", (place, height), ha="center", va="bottom", fontsize=8)
    axes.set(yscale="log", title="time of a fit", ylabel="seconds", xticks=range(len(groups)), xticklabels=list(groups))


# The verdicts -------------------------------------------------------------------------------------------------------


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge by dominance: fewer seizures and fewer pulses; the recordings, where they were run, decide."""
    trees, timed = select(rows, method="FQIT"), [row for row in rows if row.get("timed")]
    if not trees or not timed:
        return [not_run(f"EP{k}", "Needs FQIT.") for k in (1, 2, 3)]
    source = "recordings" if select(rows, source="recordings") else "substitute"
    own = select(rows, source=source)
    if not select(own, method="fixed") or not _rivals(own):
        needs = "Needs fixed frequencies, KBSF and FQIT."
        return [not_run("EP1", needs), not_run("EP2", needs), _ep3(trees, timed)]
    return [_ep1(rows, source), _ep2(own), _ep3(trees, timed)]


def _said(group: list[Row]) -> str:
    return f"{interval(group, 'seizures')[0]:.3f} / {interval(group, 'pulses')[0]:.3f}"


def _at(rows: list[Row], hz: float) -> Row:
    return select(rows, method="fixed", hz=hz)[0]


def _ep1(rows: list[Row], judged_by: str) -> Verdict:
    texts, notes = [], []
    for source in distinct(select(rows, method="fixed"), "source"):
        own = select(rows, source=source)
        said = "; ".join(
            f"penalty {penalty:g}: " + ", ".join(f"{name} {_said(group)}" for name, group in found.items())
            for penalty, found in _rivals(own).items()
        )
        texts.append(f"{source}: 1 Hz {_said([_at(own, 1.0)])}; {said}")
        notes.append(f"{source}: " + "; ".join(f"{name}: {_said(group)}" for name, group in _groups(own).items()))
    own = select(rows, source=judged_by)
    one = _at(own, 1.0)
    at_penalties = tuple(
        All(tuple(part for name, group in found.items() for part in _fewer(f"{name}, {penalty:g}", group, one)))
        for penalty, found in _rivals(own).items()
    )
    note = (
        "Fractions of seizures / of pulses, penalty by penalty: at one and the same penalty KBSF and FQIT(20) must "
        f"both have fewer of both than 1 Hz, on the {judged_by}. Of KBSF's settings the one counts that costs least "
        "at that penalty. The fixed frequency is tested once, from the same states as they are. All: "
        f"{'. '.join(notes)}."
    )
    # The penalty at which KBSF costs least by its own measure, in units of a pulse per decision.
    penalty, found = min(_rivals(own).items(), key=lambda entry: _cost(entry[1]["KBSF"]) / entry[0])
    said = ", ".join(f"{name} {_said(group)}" for name, group in found.items())
    ours = f"1 Hz {_said([one])}; at {penalty:g}: {said}"
    return Verdict("EP1", ours, OneOf(at_penalties), f"{note} {'. '.join(texts)}.")


def _rivals(rows: list[Row]) -> dict[float, dict[str, list[Row]]]:
    """Return the runs of KBSF at its cheapest setting and of FQIT(20) for each penalty, which costs are taken with."""
    found = {}
    for penalty in distinct(rows, "penalty"):
        own = select(rows, penalty=penalty)
        kernels = select(own, part="kernels", method="KBSF")
        settings = [select(kernels, scaling=scaling, tau_bar=width) for scaling in SCALINGS for width in TAU_BARS]
        kbsf, fqit = min(filter(None, settings), key=_cost, default=[]), select(own, method="FQIT", eta=20)
        if kbsf and fqit:
            found[penalty] = {"KBSF": kbsf, "FQIT(20)": fqit}
    return found


def _fewer(name: str, group: list[Row], fixed: Row) -> tuple[Sampled, Sampled]:
    """Judge whether a method has fewer seizures, and fewer pulses, than a fixed frequency has."""
    first, second = (
        Sampled(f"the share of {what} of {name},", measured(group, what), high=fixed[what])
        for what in ("seizures", "pulses")
    )
    return first, second


def _ep2(rows: list[Row]) -> Verdict:
    parts, advances = [], []
    fixed = sorted(select(rows, method="fixed"), key=lambda row: float(row["hz"]))
    rivals = {name: group for name, group in _groups(rows).items() if name.startswith(("LSPI", "FQIT(200)"))}
    for name, group in rivals.items():
        for row in fixed:
            about = f"{name} (against {row['hz']:g} Hz)"
            more = (
                Sampled(f"the share of {what} of {about}", measured(group, what), low=row[what])
                for what in ("seizures", "pulses")
            )
            parts.append(OneOf(tuple(more)))
        if any(all(interval(group, what)[0] < row[what] for what in ("seizures", "pulses")) for row in fixed):
            advances.append(f"{name} ({_said(group)})")
    ours = f"advances on average: {', '.join(advances) or 'none'}"
    note = (
        "Each of LSPI's and FQIT(200)'s policies must have more seizures or more pulses than each fixed frequency. "
        f"Runs of FQIT(200): {len(distinct(select(rows, method='FQIT', eta=200), 'seed'))}."
    )
    return Verdict("EP2", ours, All(tuple(parts)), note)


def _ep3(trees: list[Row], timed: list[Row]) -> Verdict:
    fqit, kbsf = (
        {(row["source"], row["penalty"], row["seed"]): row["seconds"] for row in group}
        for group in (select(trees, eta=20), timed)
    )
    slow, fast = (float(np.mean(list(found.values()))) for found in (fqit, kbsf))
    ours = f"{slow / fast:.1f} times"
    note = (
        "Fits to the logs of each source and penalty, one at a time on both cores; our FQIT refreshes frozen trees "
        f"without refitting, and uses both cores. FQIT(20) {slow:.1f} s, KBSF {fast:.2f} s. Against "
        "trees that are refitted at every iteration: RIVALS.md."
    )
    part = Sampled(f"the time in seconds of FQIT(20) less {FASTER:g} times KBSF's", gap(fqit, kbsf, FASTER), low=0.0)
    return Verdict("EP3", ours, part, note)
