"""Draw the pictures of the pages, from the library itself.

python docs/scripts/pictures.py            # all of them, into docs/pictures/
python docs/scripts/pictures.py hero ward  # some of them
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from kbrl import KBSF, Transitions, judge, load_log, load_model, split_episodes
from kbrl.cli import main as kbrl_command
from kbrl.demo.ward_table import DRUGS, judged_and_true, write_ward
from kbrl.insight.coverage import coverage
from kbrl.tasks import PuddleWorld

FOLDER = Path(__file__).parents[1] / "pictures"
NONE, LOW, HIGH = "#56B4E9", "#E69F00", "#D55E00"  # of Okabe and Ito, for people who see colours differently
INK, GREY, GREEN = "#222222", "#8a8a8a", "#009E73"
mpl.rcParams |= {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11}


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _save(figure: Figure, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", dpi=120)


def _ward(folder: Path) -> tuple[Any, Any, Any, tuple[float, float]]:
    """Return the log of the ward, the model that kbrl fit makes of half of it, the judgement, and the truth."""
    table, config, model = folder / "ward.csv", folder / "ward.toml", folder / "ward.kbrl"
    write_ward(table)
    with redirect_stdout(StringIO()):
        kbrl_command(["init", str(table), "-o", str(config)])
        kbrl_command(["fit", str(table), "--config", str(config), "--hold-out", "0.5", "-o", str(model)])
    known = load_model(model)
    log = load_log(str(table), columns=_columns(config))
    _, rest = split_episodes(log, 0.5)
    return log, known, judge(known, rest), judged_and_true(model)


def _columns(config: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(config.read_text(encoding="utf-8"))


def hero() -> None:
    """From logged decisions to a policy to a verdict: the ward of kbrl demo."""
    with tempfile.TemporaryDirectory() as folder:
        log, model, found, (now, then) = _ward(Path(folder))
    figure = _figure(11.2, 3.7)
    logged, advised, verdict = figure.subplots(1, 3, width_ratios=(1, 1, 0.95))
    colours, rng = dict(zip(DRUGS, (NONE, LOW, HIGH))), np.random.default_rng(0)
    labels = np.asarray(log.actions)
    measured = np.flatnonzero(log.states[:, list(log.source.recipe.variables).index("lactate is missing")] == 0)
    shown = rng.permutation(measured)[:2500]
    for drug, colour in colours.items():
        rows = shown[labels[shown] == drug]
        logged.plot(log.states[rows, 0], log.states[rows, 1], ".", color=colour, markersize=3.5, alpha=0.7, label=drug)
    logged.set(title="1. What was done, and what came of it", xlabel="illness (sofa)", ylabel="lactate")
    logged.legend(loc="upper left", frameon=False, markerscale=3, handletextpad=0.1)
    _advice(advised, model, colours)
    _verdict(verdict, found, now, then)
    limits = {"xlim": (1.5, 18), "ylim": (0.8, 5.5)}
    logged.set(**limits)
    advised.set(**limits)
    _save(figure, "hero")


def _advice(axes: Any, model: Any, colours: dict[str, str]) -> None:
    """Colour each state by what the policy advises, and hatch where few cases support it."""
    sofa, lactate = np.linspace(1.5, 18, 110), np.linspace(0.8, 5.5, 80)
    grid = np.stack(np.meshgrid(sofa, lactate), axis=-1).reshape(-1, 2)
    states = np.zeros((len(grid), len(model.source.recipe.variables)))
    states[:, :2] = grid
    answers = np.array([DRUGS.index(str(label)) for label in model.predict(states)]).reshape(80, 110)
    axes.pcolormesh(sofa, lactate, answers, cmap=ListedColormap(list(colours.values())), vmin=0, vmax=2, alpha=0.75)
    best = model.q_values(states).argmax(axis=1)
    support = coverage(model, states).support[np.arange(len(states)), best].reshape(80, 110)
    axes.contourf(sofa, lactate, support, levels=[-1, 5], colors="none", hatches=["////"])
    axes.contour(sofa, lactate, support, levels=[5], colors=INK, linewidths=0.8)
    axes.set(title="2. What the policy advises", xlabel="illness (sofa)")
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 2}
    axes.text(2.0, 5.15, "hatched: fewer than 5 cases", fontsize=9, bbox=box)


def _verdict(axes: Any, found: Any, now: float, then: float) -> None:
    rows = (
        ("doctors", found.now, now, GREY),
        ("policy", found.value, then, GREEN),
        ("gain", found.gain, then - now, INK),
    )
    for place, (_, interval, truth, colour) in enumerate(rows):
        axes.plot(
            [interval.low, interval.high],
            [-place, -place],
            color=colour,
            linewidth=9,
            alpha=0.35,
            solid_capstyle="butt",
        )
        axes.plot(interval.estimate, -place, "o", color=colour, markersize=8)
        axes.plot(truth, -place, "D", markerfacecolor="white", markeredgecolor=INK, markersize=7)
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.plot([], [], "o", color=GREY, label="estimate, with 95 % interval")
    axes.plot([], [], "D", markerfacecolor="white", markeredgecolor=INK, label="truth, in the simulator")
    axes.legend(loc="lower left", frameon=False, fontsize=9, bbox_to_anchor=(-0.03, -0.02))
    axes.set(
        title=f"3. Judged on other patients: {found.verdict}", xlabel="discounted score per patient", ylim=(-3.4, 0.5)
    )
    axes.set_yticks([0, -1, -2], [name for name, *_ in rows])
    axes.tick_params(axis="y", length=0)


def _puddles(n: int = 3000, m: int = 60) -> tuple[PuddleWorld, Transitions, KBSF]:
    task = PuddleWorld()
    log = task.collect(n, random_state=0)
    learner = KBSF(n_reps=m, sample_width=0.1, rep_width=0.1, discount=task.discount, random_state=0).fit(log)
    return task, log, learner


def _draw_puddles(axes: Any, task: PuddleWorld) -> None:
    side = np.linspace(0.0, 1.0, 151)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    axes.contourf(side, side, task.depths(grid).reshape(151, 151), levels=[1e-9, 1.0], colors=["#9ecae1"], alpha=0.8)
    axes.plot([0.9, 1.0], [1.0, 0.9], color=GREEN, linewidth=3)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])


def representatives() -> None:
    """The samples, the representative states chosen among them, and what one of them sees."""
    task, log, learner = _puddles()
    model, figure = learner.model_, _figure(11, 3.9)
    reps = model.reps
    samples, chosen, kernel = figure.subplots(1, 3)
    for axes in (samples, chosen, kernel):
        _draw_puddles(axes, task)
    samples.plot(*log.states.T, ".", color=INK, markersize=1.5, alpha=0.5)
    samples.set_title(f"{len(log.states):,} logged moves")
    chosen.plot(*log.states.T, ".", color=GREY, markersize=1, alpha=0.25)
    chosen.plot(*reps.T, "o", color=HIGH, markersize=5, markeredgecolor="white")
    chosen.set_title(f"{len(reps)} representative states")
    place = int(np.argmin(((reps - [0.35, 0.45]) ** 2).sum(axis=1)))
    scaled = model.coordinates.of(log.states)
    gaps = np.linalg.norm(scaled - model.basis.reps[place], axis=1)
    weights = np.exp(-gaps / 0.25)
    near = weights > 0.02
    kernel.plot(*log.states.T, ".", color=GREY, markersize=1, alpha=0.25)
    kernel.scatter(*log.states[near].T, s=4 + 60 * weights[near], c=weights[near], cmap="YlOrRd", vmin=-0.2, vmax=1)
    kernel.plot(*reps[place], "*", color=INK, markersize=12)
    kernel.set_title("what one of them learns from")
    _save(figure, "representatives")


def factorization() -> None:
    """What happens to one logged move: from a representative state to a sample, its end, and back."""
    task, log, learner = _puddles()
    model, figure = learner.model_, _figure(11, 3.9)
    reps = model.reps
    to_samples, to_reps, reduced = figure.subplots(1, 3)
    place = int(np.argmin(((reps - [0.65, 0.25]) ** 2).sum(axis=1)))
    scaled = model.coordinates.of(log.states)
    gaps = np.linalg.norm(scaled - model.basis.reps[place], axis=1)
    rows = np.flatnonzero(log.actions == 0)
    near = rows[np.argsort(gaps[rows])[:5]]
    for axes in (to_samples, to_reps, reduced):
        _draw_puddles(axes, task)
        axes.plot(*reps.T, "o", color=HIGH, markersize=4, alpha=0.5, markeredgecolor="none")
        axes.plot(*reps[place], "*", color=INK, markersize=12)
    for row in near:
        _arrow(to_samples, reps[place], log.states[row], LOW)
        _arrow(to_samples, log.states[row], log.next_states[row], INK)
        ends = log.next_states[row]
        _arrow(to_reps, log.states[row], ends, INK)
        for rep in np.argsort(((reps - ends) ** 2).sum(axis=1))[:3]:
            _arrow(to_reps, ends, reps[rep], GREEN)
    shares = model.mdp.probabilities[0][place]
    for rep in np.argsort(shares)[-6:]:
        _arrow(reduced, reps[place], reps[rep], GREEN, 0.6 + 7 * float(shares[rep]))
    window = {
        "xlim": (reps[place][0] - 0.2, reps[place][0] + 0.2),
        "ylim": (reps[place][1] - 0.2, reps[place][1] + 0.2),
    }
    for axes in (to_samples, to_reps, reduced):
        axes.set(**window)
    to_samples.set_title("K: similar cases, and where they led")
    to_reps.set_title("D: ends, written as representative states")
    reduced.set_title("K D: moves between representative states")
    _save(figure, "factorization")


def _arrow(axes: Any, start: Any, end: Any, colour: str, width: float = 1.4) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 1}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def values() -> None:
    """What comes out: the value of each place, and the way from some of them."""
    task, _, learner = _puddles(8000, 100)
    figure = _figure(9, 4)
    value, ways = figure.subplots(1, 2, width_ratios=(1.16, 1))
    side = np.linspace(0.0, 1.0, 121)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    image = value.pcolormesh(side, side, learner.values(grid).reshape(121, 121), cmap="YlGn", shading="gouraud")
    figure.colorbar(image, ax=value, label="value")
    value.plot(*learner.reps_.T, ".", color=INK, markersize=3)
    value.set(aspect="equal", xticks=[], yticks=[], title="value of each place, and the representative states")
    _draw_puddles(ways, task)
    log = task.evaluate(learner.predict, "paper", random_state=0, record=True).log
    for episode in np.unique(log.episodes):
        rows = log.episodes == episode
        track = np.concatenate([log.states[rows], log.next_states[rows][-1:]])
        ways.plot(*track.T, color=HIGH, linewidth=1.4)
        ways.plot(*track[0], "o", color=HIGH, markeredgecolor=INK, markersize=5)
    ways.set_title("ways from the paper's 13 test states")
    _save(figure, "values")


def lines() -> None:
    """Averages and lines, on one variable: what each predicts of the next state."""
    rng = np.random.default_rng(3)
    state = rng.uniform(-3, 3, (900, 1))
    actions = rng.choice(["left", "right"], 900)
    push = np.where(actions == "right", 0.12, -0.12)[:, None]
    log = Transitions(state, actions, -np.abs(state[:, 0]), state + push + 0.02 * rng.normal(size=(900, 1)))
    centres = np.linspace(-2.5, 2.5, 6)[:, None]
    grid = np.linspace(-2.7, 2.7, 400)
    figure = _figure(9.5, 3.6)
    for axes, title, predict in zip(
        figure.subplots(1, 2, sharey=True),
        ("order 0: an average around each state", "order 1: a line around each state"),
        (_average, _line),
    ):
        axes.axhline(0, color=GREY, linewidth=0.8)
        for label, colour in (("left", NONE), ("right", HIGH)):
            rows = np.asarray(log.actions) == label
            x, moved = log.states[rows, 0], (log.next_states - log.states)[rows, 0]
            axes.plot(x, moved, ".", color=colour, markersize=2.5, alpha=0.35)
            axes.plot(grid, predict(x, x + moved, grid, centres[:, 0]) - grid, color=colour, linewidth=2, label=label)
        axes.plot(centres[:, 0], np.zeros(6), "|", color=INK, markersize=12)
        axes.set(title=title, xlabel="state", ylim=(-0.75, 0.75))
    figure.axes[0].set_ylabel("predicted move")
    figure.axes[1].legend(frameon=False, loc="upper right", title="action")
    _save(figure, "lines")


def _average(x: Any, ends: Any, grid: Any, centres: Any) -> Any:
    """Return the mean next state around each centre, mixed over the centres near each point, as KBSF does."""
    found = np.array([np.average(ends, weights=np.exp(-np.abs(x - c) / 0.25)) for c in centres])
    near = np.exp(-np.abs(grid[:, None] - centres) / 0.25)
    return (near * found).sum(axis=1) / near.sum(axis=1)


def _line(x: Any, ends: Any, grid: Any, centres: Any) -> Any:
    """The same with a line around each centre."""
    fits = [np.polyfit(x - c, ends, 1, w=np.sqrt(np.exp(-np.abs(x - c) / 0.25))) for c in centres]
    near = np.exp(-np.abs(grid[:, None] - centres) / 0.25)
    at = np.stack([np.polyval(fit, grid - c) for fit, c in zip(fits, centres)], axis=1)
    return (near * at).sum(axis=1) / near.sum(axis=1)


def numbers() -> None:
    """What the half width of an interval is made of."""
    log = PuddleWorld().collect(20_000, random_state=0)
    learn, rest = split_episodes(log, 0.5)
    found = judge(KBSF(n_reps=100, random_state=0).fit(learn).model_, rest)
    figure = _figure(9, 2.9)
    axes = figure.subplots()
    parts = (("sampling", NONE), ("smoothing", LOW), ("self_check", HIGH))
    for place, (name, interval) in enumerate((("now", found.now), ("value", found.value), ("gain", found.gain))):
        inner = 0.0
        for part, colour in parts:
            width = getattr(interval, part)
            for sign in (-1, 1):
                start = interval.estimate + sign * inner
                axes.barh(-place, sign * width, left=start, height=0.45, color=colour, alpha=0.85)
            inner += width
        axes.plot(interval.estimate, -place, "o", color=INK, markersize=7)
        text = f"{interval.estimate:.2f}  ({interval.low:.2f} to {interval.high:.2f})"
        axes.text(interval.estimate, -place + 0.3, text, ha="center", fontsize=9)
        axes.text(-15.5, -place, name, va="center", fontweight="bold")
    for part, colour in parts:
        axes.barh(0, 0, color=colour, label=part.replace("_", "-"))
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.set(yticks=[], xlabel="discounted return per episode", xlim=(-16, 20), ylim=(-2.5, 0.75))
    axes.spines["left"].set_visible(False)
    _save(figure, "numbers")


def support() -> None:
    """The same policy, judged by a log of people who try things, and by one of people who do not."""
    task = PuddleWorld()
    wide = task.collect(60_000, random_state=1)
    habit = KBSF(n_reps=100, sample_width=0.1, rep_width=0.1, random_state=0).fit(wide)
    rng, names = np.random.default_rng(2), list(task.actions)

    def shortest(states: Any) -> Any:
        return np.where(states[:, 0] < states[:, 1], names.index("right"), names.index("up"))

    def narrow(states: Any) -> Any:
        usual = habit.predict(states)
        return np.where(rng.random(len(states)) < 0.05, rng.integers(4, size=len(states)), usual)

    logs = {
        "people who try everything": wide,
        "people who always do the same": task.collect(20_000, narrow, random_state=3),
    }
    figure = _figure(9, 4.1)
    for axes, (title, log) in zip(figure.subplots(1, 2), logs.items()):
        _draw_puddles(axes, task)
        axes.plot(*log.states[:20_000].T, ".", color=INK, markersize=1.2, alpha=0.35)
        _, rest = split_episodes(log, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = judge(shortest, rest, discount=0.99)
        axes.set_title(title)
        span = f"{found.gain.low:+.1f} to {found.gain.high:+.1f}"
        said = f"{100 * found.thin_share:.0f} % of its decisions without support"
        axes.set_xlabel(f'"straight to the goal": {found.verdict} ({span})\n{said}', fontsize=10)
    _save(figure, "support")


PICTURES: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (hero, representatives, factorization, values, lines, numbers, support)
}


def main() -> None:
    """Draw the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the pages.")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []])
    for name in parser.parse_args().names or PICTURES:
        PICTURES[name]()
        print(f"{FOLDER / name}.png")


if __name__ == "__main__":
    main()
