"""The paper's propositions, tried out: is an error ever above its bound, and does xi_v go to 0?

Paper: propositions 1 (section 3.2), 2 and 3 (section 4.2), 4 (section 5.1) and 5 (appendix A.3).  It proves them and
runs nothing, so the models are ours: small random ones (``theory_models``), and KBRL's and KBSF's of the puddle world,
of few transitions, as KBRL is to be solved for comparison.  Distances are in standard deviations of a uniform state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import new_figure
from experiments.study import Job, Row, Settings, Verdict, distinct, generator, select
from experiments.theory_models import NORMS, crowd, exact_factors, largest_error, norm_ratios, random_errors
from kbrl import KBRL, KBSF, Kernel, Solver, Transitions, Variant
from kbrl.arrays import Floats
from kbrl.learners.online import OnlineAgent
from kbrl.model.kbsf_bounds import bound_kbsf, largest_distance
from kbrl.model.q_functions import RepQ
from kbrl.tasks import PuddleWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "The theory's claims"

GAMMA = 0.99  # the paper's, in all of its experiments
GAMMAS = (0.5, 0.9, 0.99)
WIDTHS = (0.01, 0.1, 1.0)  # tau, and tau-bar
TAU = 0.1  # of TH3 and TH4
DENSER = (1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # TH3: distance to the representative states
NARROWER = (1e-1, 1e-3, 1e-6, 1e-9)  # TH3: tau-bar
T_V = 10  # TH4: transitions between two updates of the values; t_m = 1, as the proposition has it
CROWDS = (1, 3, 10, 30, 100)  # TH5
SCALING = np.full(2, 1 / np.sqrt(12.0))
TOLERANCE = 1e-13


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    n_runs: int
    n_models: int  # random ones, for each discount
    n_steps: int  # on-line
    n: tuple[int, ...]  # transitions; the first is TH3's
    m: tuple[int, ...]
    sides: tuple[int, ...]  # of TH3's grids


SIZES = {
    "smoke": Size(1, 30, 40, (60,), (20,), (5, 10)),
    "laptop": Size(8, 300, 300, (100, 400), (20, 100), (10, 20, 40, 80, 160, 320)),
    "paper": Size(50, 300, 500, (100, 800), (20, 100), (10, 20, 40, 80, 160, 320)),
}


def jobs(scale: str) -> list[Job]:
    """One job a seed: all parts together take less time than a few processes to start."""
    return [Job({"size": scale}, seed) for seed in range(SIZES[scale].n_runs)]


def measure(settings: Settings, seed: int) -> Iterator[Row]:
    """Compare errors with bounds, part by part."""
    for name, part in PARTS.items():
        for row in part(SIZES[settings["size"]], seed):
            yield {"part": name} | row


def _random(size: Size, seed: int) -> Iterator[Row]:
    """TH1: random MDPs with random factors."""
    rng = generator(seed)
    for gamma in GAMMAS:
        yield {"gamma": gamma} | _columns(random_errors(rng, gamma) for _ in range(size.n_models))


def _puddle(size: Size, seed: int) -> Iterator[Row]:
    """TH1 and TH2: KBSF against KBRL, values at the next states, and Q at random states in and around the world."""
    log, rng = PuddleWorld().collect(max(size.n), random_state=generator(seed)), generator(seed, 1)
    for n in size.n:
        for gamma in GAMMAS:
            found = []
            for tau in WIDTHS:
                big = KBRL(tau, discount=gamma, scaling=SCALING, tolerance=TOLERANCE, min_cases=1).fit(log[:n])
                for m in (*size.m, n):
                    for tau_bar in (*WIDTHS, 1e-6):
                        case = {"m": m, "tau": tau, "tau_bar": tau_bar}
                        found.append(case | _against(big, log[:n], m, tau_bar, rng.uniform(-0.5, 1.5, (200, 2))))
            yield {"n": n, "gamma": gamma} | _columns(found)


def _against(big: KBRL, log: Transitions, m: int, tau_bar: float, anywhere: Floats) -> dict[str, float]:
    """Compare KBSF with KBRL on the same data; with as many representative states as data, they are the next states."""
    reps: Any = np.unique(log.next_states, axis=0) if m == len(log) else "k-means"
    kept: dict[str, Any] = {"discount": big.discount, "random_state": 0, "variant": Variant(q_function="samples")}
    exactly: dict[str, Any] = {"scaling": SCALING, "solver": Solver(tolerance=TOLERANCE)}
    small = KBSF(m, reps, big.sample_width, tau_bar, **kept, **exactly, min_cases=1, order=0).fit(log)
    going, bound = ~log.terminals, small.bound_values(log)
    values, lifted = big.solution_.values, small.q_from_reps(log.next_states).max(axis=1)
    error = largest_error(values[going], lifted[going])
    q_error = largest_error(big.q_values(anywhere), small.q_from_samples(anywhere))
    found = {"error": error, "bound": bound.value, "q_error": q_error, "q_bound": bound.q_error}
    return found | {"trivial": bound.trivial}


def _denser(size: Size, seed: int) -> Iterator[Row]:
    """TH3: xi_v for representative states ever closer to the next states: beside each, and on ever finer grids."""
    log, rng = PuddleWorld().collect(size.n[0], random_state=generator(seed)), generator(seed, 1)
    log = Transitions(log.states / SCALING, log.actions, log.rewards, log.next_states / SCALING, log.terminals)
    directions = rng.normal(size=log.next_states.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sequences = [("beside", log.next_states + distance * directions) for distance in DENSER]
    sequences += [("grid", _grid(side) / SCALING) for side in size.sides]
    for kind, reps in sequences:
        found = []
        for tau_bar in NARROWER:
            bound = bound_kbsf(log, reps, Kernel(TAU), Kernel(tau_bar), GAMMA)
            found.append({"tau_bar": tau_bar, "bound": bound.value, "trivial": bound.trivial})
        distance = largest_distance(log.next_states, reps)
        yield {"sequence": kind, "m": len(reps), "distance": _short(distance)} | _columns(found)


def _grid(side: int) -> Floats:
    line = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def _online(size: Size, seed: int) -> Iterator[Row]:
    """TH4: an agent learns while it acts; after each step its Q where it now is is compared with KBRL's."""
    for gamma in (GAMMAS[0], GAMMA):
        yield {"gamma": gamma} | _columns(_online_run(gamma, size.n_steps, seed))


def _online_run(gamma: float, n_steps: int, seed: int) -> Iterator[dict[str, float]]:
    rng, task, seen = generator(seed), PuddleWorld(), []
    exactly: dict[str, Any] = {"scaling": SCALING, "solver": Solver(tolerance=TOLERANCE)}
    learner = KBSF(reps=_grid(10), sample_width=TAU, rep_width=0.01, discount=gamma, **exactly, min_cases=1, order=0)
    agent = OnlineAgent(learner, 4, exploration=0.5, model_interval=1, value_interval=T_V, random_state=seed)
    state, rep_q = task.reset(1, rng), np.full((100, 4), -np.inf)
    for t in range(1, n_steps + 1):
        action = agent.act(state[0])
        next_state, reward, end = task.step(state, [action], rng)
        seen.append((state[0], action, reward[0], next_state[0], bool(end[0])))
        agent.observe(*seen[-1])
        if t % T_V == 0:
            rep_q = learner.rep_q_  # what the agent acts by until the next update
        if not end[0] and np.isfinite(rep_q).all():  # every action has been tried
            log = Transitions(*(np.array(column) for column in zip(*seen)), action_labels=np.arange(4))
            yield {"t": t} | _online_error(learner, log, rep_q)
        state = task.reset(1, rng) if end[0] else next_state


def _online_error(learner: KBSF, log: Transitions, rep_q: Floats) -> dict[str, float]:
    here, epsilon = log.next_states[-1:], float(np.abs(learner.rep_q_ - rep_q).max())
    q = KBRL(TAU, discount=learner.discount, scaling=SCALING, tolerance=TOLERANCE, min_cases=1).fit(log).q_values(here)
    q_online = RepQ(learner.statistics_.basis.rep_weights, rep_q)(here / SCALING)
    bound = learner.bound_online(log, epsilon)
    return {"error": largest_error(q, q_online), "bound": bound.value, "trivial": bound.trivial}


def _norms(size: Size, seed: int) -> Iterator[Row]:
    """TH5: random exact factorizations, and an example made to break the bound."""
    rng = generator(seed)
    random = [exact_factors(rng, gamma) for gamma in (0.1, 0.5, 0.9) for _ in range(size.n_models)]
    cases = [("random", 0, random)] + [("crowd", n_crowd, [crowd(n_crowd)]) for n_crowd in CROWDS if seed == 0]
    for kind, n_crowd, models in cases:
        ratios = [norm_ratios(*model) for model in models]
        for norm in NORMS:
            row = {"models": kind, "n_crowd": n_crowd, "norm": norm}
            yield row | {"ratios": [_short(found[norm]) for found in ratios]}


PARTS = {"random": _random, "puddle": _puddle, "denser": _denser, "on-line": _online, "norms": _norms}


def _columns(found: Iterable[dict[str, float]]) -> Row:
    """Return many rows as one row of lists, which takes far less room."""
    rows = list(found)
    return {name: [_short(row[name]) for row in rows] for name in (rows[0] if rows else ())}


def _short(value: float) -> float:
    return float(f"{value:.10g}")


# The picture --------------------------------------------------------------------------------------------------------


def draw(rows: list[Row]) -> Figure:
    """Draw errors against bounds, claim by claim."""
    figure, panels = new_figure(2, 3)
    random, puddle = select(rows, part="random"), select(rows, part="puddle")
    _scatter(panels[0, 0], random, "error", "bound", "random MDP", ".")
    _scatter(panels[0, 0], puddle, "error", "bound", "KBSF and KBRL", "x")
    panels[0, 0].set(title=r"(a) proposition 1: $|v^* - \max D \bar{Q}|$", xlabel=r"bound $\xi_v$", ylabel="error")
    _scatter(panels[0, 1], puddle, "q_error", "q_bound", "KBSF and KBRL", "x")
    panels[0, 1].set(title="(b) proposition 2: Q anywhere", xlabel=r"bound $\gamma\,\xi_v$", ylabel="error")
    _draw_denser(panels[0, 2], select(rows, part="denser"))
    _draw_online(panels[1, 0], select(rows, part="on-line"))
    _draw_norms(panels[1, 1], select(rows, part="norms", models="random"))
    _draw_crowd(panels[1, 2], select(rows, part="norms", models="crowd"))
    for axes in panels.flat:
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncol=2)
    return figure


COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73")


def _scatter(axes: Axes, rows: list[Row], error: str, bound: str, label: str, marker: str) -> None:
    """Draw errors over bounds; those that are 0 have no place on these axes."""
    for gamma, color in zip(GAMMAS, COLORS):
        own = select(rows, gamma=gamma)
        x, y = (np.array([value for row in own for value in row[name]]) for name in (bound, error))
        shown = (x > 0) & (y > 1e-12)
        text = rf"{label}, $\gamma$ = {gamma:g}"
        axes.plot(x[shown], y[shown], marker, color=color, markersize=3, alpha=0.5, label=text, rasterized=True)
    low, high = 1e-6, 1e6
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, 1e3))


def _draw_denser(axes: Axes, rows: list[Row]) -> None:
    """Draw one line per run."""
    for sequence, line in (("beside", "-"), ("grid", ":")):
        for run, seed in enumerate(distinct(rows, "seed")):
            own = sorted(select(rows, sequence=sequence, seed=seed), key=lambda row: float(row["distance"]))
            own = [row for row in own if row["trivial"][0] > 0]  # a log without rewards has nothing to bound
            for place, (tau_bar, color) in enumerate(zip(NARROWER, COLORS)):
                label = rf"{sequence}, $\bar\tau$ = {tau_bar:g}" if run == 0 else None
                heights = [row["bound"][place] / row["trivial"][place] for row in own]
                style: dict[str, Any] = {"color": color, "linewidth": 0.9, "markersize": 3, "alpha": 0.7}
                axes.plot([row["distance"] for row in own], heights, line, marker="o", label=label, **style)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(title=r"(c) proposition 3: $\xi_v$ goes to 0", xlabel="largest distance to a representative state")
    axes.set(xscale="log", yscale="log", ylabel=r"$\xi_v$ / trivial bound")


def _draw_online(axes: Axes, rows: list[Row]) -> None:
    """Draw the worst of all runs at each t."""
    for gamma, color in zip(distinct(rows, "gamma"), (COLORS[0], COLORS[2])):
        worst: dict[int, float] = {}
        for row in select(rows, gamma=gamma):
            for t, error, bound in zip(row["t"], row["error"], row["bound"]):
                worst[int(t)] = max(worst.get(int(t), 0.0), error / bound if error > 0 else 0.0)
        places = sorted(worst)
        axes.plot(
            places, [max(worst[t], 1e-9) for t in places], color=color, linewidth=1, label=rf"$\gamma$ = {gamma:g}"
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(title="(d) proposition 4: Q along on-line runs", xlabel="t, transitions", yscale="log")
    axes.set(ylabel="largest error / bound of the runs")


def _draw_norms(axes: Axes, rows: list[Row]) -> None:
    for norm, color in zip(NORMS, COLORS):
        ratios = np.sort([ratio for row in select(rows, norm=norm) for ratio in row["ratios"]])[::-1]
        places = (np.arange(len(ratios)) + 1) / max(1, len(ratios))
        axes.plot(places, np.maximum(ratios, 1e-3), color=color, label=norm_label(norm))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(title="(e) proposition 5: random models", xlabel="share of the models", ylabel=r"error / bound $\xi'_v$")
    axes.set(xscale="log", yscale="log")


def _draw_crowd(axes: Axes, rows: list[Row]) -> None:
    for norm, color in zip(NORMS, COLORS):
        own = select(rows, norm=norm)
        sizes, ratios = [row["n_crowd"] for row in own], [row["ratios"][0] for row in own]
        axes.plot(sizes, ratios, "o-", markersize=4, color=color, label=norm_label(norm))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(title="(f) proposition 5: a worked example", xlabel="states that lead to the misjudged one")
    axes.set(xscale="log", yscale="log", ylabel=r"error / bound $\xi'_v$")


def norm_label(norm: str) -> str:
    """Return how a norm is called."""
    return "max norm" if norm == "max" else f"{norm}-norm"


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Judge TH1 to TH5."""
    from experiments.theory_claims import judge  # which has its settings from here

    return judge(rows)
