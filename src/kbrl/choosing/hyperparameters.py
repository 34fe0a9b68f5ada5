"""The kernels' widths and the number of representative states, chosen by what the data say.

tau: how well the kernel average over an action's other transitions predicts the next state and the reward of each one.
tau-bar: how well next states are put together again from the representative states.  Neither needs a solved model.
Or, for both: how much of the one-step targets of held-out transitions the values of a solved model leave unexplained.
m: as many as make the model no larger than its data, or a thousand, within memory and time; in seconds, by a brief
measurement.
Paper: section 6.2 searches widths by their return in a simulator; a log has none.  Section 4.2 gives the costs of m.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Floats, Integers
from kbrl.checks import KbrlWarning, as_generator, one_of, positive, whole
from kbrl.data.transitions import Transitions, as_log
from kbrl.model.compiled import FARTHEST
from kbrl.model.kernels import Basis, Kernel, Profile, Samples, blocks, distances_between, log_ratio, nearest_points
from kbrl.model.model import basis_for, first_model
from kbrl.settings import FEW_CASES, Growth, Settings, checked
from kbrl.threads import for_each_action

CRITERIA = ("error", "bellman")
WIDTHS = ("sample_width", "rep_width")
Each = Callable[[Callable[[Any], float], Sequence[Any]], Iterable[float]]
# Bounds of the work, whatever the size of the sample: transitions predicted, those that each is predicted from, next
# states put together again, and transitions behind a model of the Bellman criterion.
_QUERIES, _REFERENCES, _REBUILT, _LEARNT = 500, 10_000, 5000, 5000
# A sample width may err by so much more than the best if it is wider.  Measured on the puddle world: one step too
# narrow costs more return than one step too wide, and this is less than the error rises beyond that.
_NEARLY = 1.15
_NOTHING = 1e-9  # of the largest error: smaller ones count as 0
_BLOCK_ENTRIES = 2**16  # of a block of distances: it stays in the cache
_LEAST_EXPONENT = -700.0  # exp of less is slow, and nothing beside a weight of 1
MEGABYTES = 256.0  # for the sums and their copies
_LEAST, _MOST = 50, 10_000  # unless there are fewer transitions; more than that only if they are asked for
# On logs of 20 000 rows, a thousand earned more than the 190 to 330 that make a model as large as its data.
_ENOUGH, _ROWS_PER_REP = 1000, 10
_WHY_ENOUGH = "one per 10 rows up to 1,000, and more only while the model stays smaller than its data"
_WORK = 2e12  # n m^2: about a minute
COPIES = 4  # of the sums, while the MDP is made of them and saved
_TRIED, _ROWS = (96, 384), (4096, 65536)  # representative states and transitions (dense, truncated) of a measurement


@dataclass(frozen=True)
class Trial:
    """Widths that were tried, None where one played no part, and their error; errors compare within one parameter."""

    sample_width: float | None
    rep_width: float | None
    error: float


@dataclass(frozen=True)
class Widths:
    """The widths that were chosen, and all that was tried."""

    sample_width: float
    rep_width: Any  # a number, or as it was in the learner if it was to be kept
    criterion: str
    trials: tuple[Trial, ...]


LARGEST_REWARD = 1e100


def choose_widths(
    sample: Transitions,
    learner: Settings,
    *,
    criterion: str = "error",
    keep: Sequence[str] = (),
    random_state: Any = 0,
    each: Each = map,
) -> Widths:
    """Choose ``sample_width`` and ``rep_width`` for a KBSF, or settings, except those in ``keep``, which stay.

    "error" judges one width at a time and solves nothing; "bellman" starts from its choice and solves a model for each
    pair of widths it tries.  The time is bounded whatever the size of the sample.  A width that is best for a sample
    is a little too wide for many times the data.  ``each`` does what ``map`` does; another one may do it in parallel.

    Good predictions do not guarantee good decisions.  Measured: the choice comes near the best widths on the puddle
    world, but is far too narrow for pole balancing, where widths of 1 balance and those chosen do not.  Compare
    policies if you can.
    """
    one_of(criterion, CRITERIA, "criterion")
    for name in keep:
        one_of(name, WIDTHS, "keep")
    settings = checked(learner, min_cases=FEW_CASES)
    _check_sizes(as_log(sample))
    rng = as_generator(random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)  # fit says it again
        problem = _Problem.of(as_log(sample), settings)
        grids = {name: [getattr(settings, name)] if name in keep else problem.grid(name) for name in WIDTHS}
        chosen, trials = _judge_each(problem, grids, rng)
        if criterion == "bellman":
            chosen, trials = _descend(grids, chosen, problem.bellman_error(rng), each)
    return Widths(chosen["sample_width"], chosen["rep_width"], criterion, tuple(trials))


def _check_sizes(sample: Transitions) -> None:
    largest = float(np.abs(sample.rewards).max())
    if largest > LARGEST_REWARD:
        raise ValueError(
            f"Widths are chosen by squared errors, so rewards must be at most {LARGEST_REWARD:g} in size, but one "
            f"is {largest:g}. Divide the rewards by a constant, or give both widths."
        )


def _judge_each(
    problem: _Problem, grids: dict[str, list[Any]], rng: np.random.Generator
) -> tuple[dict[str, Any], list[Trial]]:
    """Choose each width by its own error; one that is alone in its grid stays."""
    chosen, trials = {name: grid[0] for name, grid in grids.items()}, []
    samples, reps = grids["sample_width"], grids["rep_width"]
    if len(samples) > 1:
        errors = problem.prediction_errors(samples, rng)
        chosen["sample_width"] = _widest(samples, errors, _NEARLY)
        trials += [Trial(width, None, error) for width, error in zip(samples, errors)]
    if len(reps) > 1:
        errors = problem.rebuilding_errors(reps, rng)
        chosen["rep_width"] = _widest(reps, errors, 1 + 1e-9)
        trials += [Trial(None, width, error) for width, error in zip(reps, errors)]
    return chosen, trials


@dataclass(frozen=True, eq=False)
class _Problem:
    """A sample, scaled and parted by action, and the representative states that the learner would choose."""

    sample: Transitions
    settings: Settings
    basis: Basis
    parts: list[Samples]  # one per action

    @classmethod
    def of(cls, sample: Transitions, settings: Settings) -> _Problem:
        if settings.variant.terminals == "continue":
            sample = sample.replaced(terminals=np.zeros(len(sample), dtype=bool))
        basis = basis_for(replace(settings, sample_width=1.0, rep_width=1.0, order=0), sample)
        return cls(sample, settings, basis, basis.by_action(sample))

    def grid(self, name: str) -> list[float]:
        """Return the widths to try, from one at which only the nearest point counts to one at which nearly all do."""
        states = self.basis.coordinates.of(self.sample.next_states[:_REFERENCES])
        spread = float(np.sqrt(states.var(axis=0).sum()))
        sets = [self.basis.reps] if name == "rep_width" else [part.states[:_REFERENCES] for part in self.parts]
        gaps = np.concatenate([_gaps(points, self.basis.rep_kernel.norm) for points in sets])
        gap = float(np.median(gaps)) if len(gaps) else spread
        return _round_numbers(gap / 8, max(spread, gap)) if gap > 0 else [1.0]

    def prediction_errors(self, widths: list[float], rng: np.random.Generator) -> list[float]:
        """Leave each transition out: the error of its next state and its reward, relative to the best widths'.

        The reward counts as one variable beside those of the state.
        """
        used = [part.take(rng.permutation(len(part.rewards))[:_REFERENCES]) for part in self.parts]
        n_total = sum(len(part.rewards) for part in used)
        errors = np.zeros((len(used), len(widths), 2))

        def work(action: int) -> None:
            part = used[action]
            if len(part.rewards) > 1:
                n_queries = -(-_QUERIES * len(part.rewards) // n_total)
                errors[action] = _left_out(part, n_queries, widths, self.basis.sample_kernel)

        for_each_action(work, len(used), self.settings.n_jobs)
        total = errors.sum(axis=0)
        total += _NOTHING * total.max(axis=0) + 1e-300  # where there is nothing to predict, all widths are alike
        of_next_state, of_reward = (total / total.min(axis=0)).T
        n_dims = self.sample.n_dims
        return ((n_dims * of_next_state + of_reward) / (n_dims + 1)).tolist()

    def rebuilding_errors(self, widths: list[float], rng: np.random.Generator) -> list[float]:
        """Return the mean square of what is between next states and their kappa-bar-weighted representative states."""
        going_on = np.flatnonzero(~self.sample.terminals)
        rows = rng.permutation(going_on if len(going_on) else len(self.sample))[:_REBUILT]
        states = self.basis.coordinates.of(self.sample.next_states[rows])
        errors = []
        for width in widths:
            basis = replace(self.basis, rep_kernel=replace(self.basis.rep_kernel, width=width))
            rebuilt = basis.rep_weights.mixed(states, basis.reps)
            errors.append(float(np.square(rebuilt - states).sum(axis=1).mean()))
        return errors

    def bellman_error(self, rng: np.random.Generator) -> Callable[[dict[str, Any]], float]:
        """Return the function of widths that says how much of the targets of held-out transitions is unexplained.

        Not the squared Bellman error itself, which is smallest where all values are the same.
        """
        rows = rng.permutation(len(self.sample))
        half = max(1, min(len(rows) // 2, _LEARNT))
        learnt, held = self.sample[rows[:half]], self.sample[rows[-half:]]
        units = self.basis.coordinates
        # of this the function needs no more, if it is sent elsewhere
        settings = replace(self.settings, reps=units.back(self.basis.reps), scaling=units.scale, growth=Growth())

        def error(widths: dict[str, Any]) -> float:
            model = first_model(replace(settings, **widths), learnt).extend(learnt, n_jobs=settings.n_jobs)
            told = model.q_values(held.states)[np.arange(half), held.action_indices]
            targets = held.rewards + model.fades(held) * model.values(held.next_states)
            known = np.isfinite(told)
            unexplained = np.square(targets - told)[known].sum()
            return float(unexplained / max(np.square(targets - targets.mean())[known].sum(), 1e-300))

        return error


def _left_out(part: Samples, n_queries: int, widths: list[float], kernel: Kernel) -> Floats:
    """Sum the squared errors of next states and of rewards over the first transitions, (n_widths, 2)."""
    going_on = (part.terminals < 1).astype(np.float64)
    # relative to the first: where all are equal, errors are exactly 0
    next_states, rewards = part.next_states - part.next_states[0], part.rewards - part.rewards[0]
    targets = np.column_stack([next_states * going_on[:, None], going_on, rewards])
    errors = np.zeros((len(widths), 2))
    for first, distances, places in _others(part.states, min(n_queries, len(part.states)), kernel):
        wanted = targets[first : first + len(distances)]
        for number, width in enumerate(widths):
            weights = _weights(distances, width, kernel.profile)
            sums = weights @ targets if places is None else np.einsum("qk,qkt->qt", weights, targets[places])
            mass = sums[:, -2]
            counted = (wanted[:, -2] > 0) & (mass > 0)
            means = sums[counted, :-2] / mass[counted, None]
            errors[number] += (
                np.square(means - wanted[counted, :-2]).sum(),
                np.square(sums[:, -1] - wanted[:, -1]).sum(),
            )
    return errors


def _others(states: Floats, n_queries: int, kernel: Kernel) -> Iterator[tuple[int, Floats, Integers | None]]:
    """Yield blocks of the first states: the number of the first, distances to others, and which; None for all.

    The distance of a state to itself is infinite.
    """
    n_columns = len(states) if kernel.neighbors is None else min(kernel.neighbors + 1, len(states))
    tree = None if kernel.neighbors is None else cKDTree(states)
    for rows in blocks(n_queries, max(1, _BLOCK_ENTRIES // n_columns)):
        numbers = np.arange(rows.start, rows.stop)
        if tree is None:
            distances, places = distances_between(states[rows], states, kernel.norm), None
            distances[numbers - rows.start, numbers] = np.inf
        else:
            distances, places = nearest_points(tree, states[rows], [*range(1, n_columns + 1)], kernel.norm)
            itself = places == numbers[:, None]
            itself[~itself.any(axis=1), -1] = True  # hidden by others at distance 0: the last one has to go
            distances[itself] = np.inf
        yield rows.start, distances, places


def _weights(distances: Floats, width: float, profile: Profile) -> Floats:
    z = np.minimum(distances / width, FARTHEST)
    values = np.exp(np.maximum(log_ratio(z, z.min(axis=1, keepdims=True), profile), _LEAST_EXPONENT))
    values[np.isinf(distances)] = 0.0
    return values / values.sum(axis=1, keepdims=True)


def _gaps(points: Floats, norm: float) -> Floats:
    """Return the distances of points, of at most this many of them, to the nearest other one that differs."""
    if len(points) < 2:
        return np.empty(0)
    distances = nearest_points(cKDTree(points), points[:_QUERIES], [2], norm)[0][:, 0]
    return distances[distances > 0]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return numbers of two digits, four per decade, that reach from low to high."""
    exponents = range(int(np.floor(4 * np.log10(low))), int(np.ceil(4 * np.log10(high))) + 1)
    return [float(f"{10.0 ** (k / 4):.2g}") for k in exponents]


def _widest(widths: Sequence[Any], errors: Sequence[float], nearly: float) -> Any:
    """Return the widest whose error is at most this factor times the smallest: a wider kernel uses more data."""
    enough = nearly * min(errors) + _NOTHING * max(errors)
    return max(width for width, error in zip(widths, errors) if error <= enough)


def _descend(
    grids: dict[str, list[Any]], start: dict[str, Any], error: Callable[[dict[str, Any]], float], each: Each
) -> tuple[dict[str, Any], list[Trial]]:
    """Try all of one width's grid, then all of the other's, until neither changes."""
    found: dict[tuple[int, int], Trial] = {}
    place = (grids["sample_width"].index(start["sample_width"]), grids["rep_width"].index(start["rep_width"]))
    changed = True
    while changed:
        before = place
        for axis, name in enumerate(WIDTHS):
            tried = [(k, place[1]) if axis == 0 else (place[0], k) for k in range(len(grids[name]))]
            new = [at for at in tried if at not in found]
            widths = [{name: grids[name][k] for name, k in zip(WIDTHS, at)} for at in new]
            found |= {at: Trial(**w, error=e) for at, w, e in zip(new, widths, each(error, widths))}
            place = min(tried, key=lambda at: found[at].error)
        changed = place != before
    return {name: grids[name][k] for name, k in zip(WIDTHS, place)}, list(found.values())


@dataclass(frozen=True)
class Sizes:
    """The sizes that decide the number of representative states."""

    n_rows: int
    n_dims: int
    n_actions: int
    sample_neighbors: int | None = None
    rep_neighbors: int | None = None

    def numbers(self, n_reps: int) -> float:
        """Return how many numbers a model with that many representative states holds."""
        if self.sample_neighbors is None:
            return float(self.n_actions) * n_reps**2
        kept = self.n_actions * n_reps * min(self.sample_neighbors, self.n_rows)
        led_to = n_reps if self.rep_neighbors is None else min(n_reps, self.sample_neighbors * self.rep_neighbors)
        return float(kept) * (self.n_dims + 4) + float(self.n_actions) * n_reps * led_to


@dataclass(frozen=True)
class Rates:
    """What learning costs on this machine, in seconds: n (row + rep m + rep_squared m^2) + solving m^2."""

    row: float
    rep: float
    rep_squared: float
    solving: float

    def seconds(self, n_rows: int, n_reps: int) -> float:
        """The time in seconds for these numbers of transitions and representative states."""
        each = self.row + self.rep * n_reps + self.rep_squared * n_reps**2
        return n_rows * each + self.solving * n_reps**2


@dataclass(frozen=True)
class NumberOfReps:
    """A number of representative states, and why it is not larger."""

    n_reps: int
    reason: str


def choose_n_reps(
    sizes: Sizes, *, megabytes: float | None = None, seconds: float | None = None, rates: Rates | None = None
) -> NumberOfReps:
    """Choose the number of representative states; ``seconds`` is what is left to learn in, at ``rates``."""
    whole(sizes.n_rows, "n_rows")
    limit = MEGABYTES if megabytes is None else positive(megabytes, "megabytes")
    in_data = sizes.n_rows * (2 * sizes.n_dims + 3)
    as_data, enough = _largest(lambda m: sizes.numbers(m) <= in_data), min(_ENOUGH, sizes.n_rows // _ROWS_PER_REP)
    found = {
        "the model is then about as large as its data" if as_data >= enough else _WHY_ENOUGH: max(as_data, enough),
        f"more would need over {limit:g} MB of memory": _largest(
            lambda m: 8e-6 * COPIES * sizes.numbers(m) <= limit, least=1
        ),
    }
    if rates is not None and seconds is not None:
        reason = "more would take longer than asked for, by a measurement on this machine; on others it may differ"
        found[reason] = _largest(lambda m: rates.seconds(sizes.n_rows, m) <= seconds, least=1)
    elif sizes.sample_neighbors is None:
        reason = "more would take much longer than a minute"
        found[reason] = _largest(lambda m: float(sizes.n_rows) * m**2 <= _WORK)
    found["there are no more transitions"] = sizes.n_rows
    reason = min(found, key=lambda why: found[why])
    return NumberOfReps(found[reason], reason)


def measure(settings: Settings, sample: Transitions, *, row_seconds: float) -> Rates:
    """Measure what learning costs on this machine; ``row_seconds`` is the time to read a row."""
    n_rows = _ROWS[settings.sample_neighbors is not None]
    part = sample[:n_rows]
    tried = [min(m, len(part)) for m in _TRIED]
    _time(settings, part[:64], tried[0])  # compiles
    small, large = (_time(settings, part, m) for m in tried)
    per_row = np.array([small[0], large[0]]) / len(part)
    # t = rep m + rep_squared m^2 through both times; neither below 0
    squared = max(0.0, float(per_row[1] / tried[1] - per_row[0] / tried[0]) / max(1, tried[1] - tried[0]))
    rep = max(0.0, float(per_row[1]) / tried[1] - squared * tried[1])
    return Rates(row_seconds, rep, squared, large[1] / tried[1] ** 2)


def _time(settings: Settings, log: Transitions, n_reps: int) -> tuple[float, float]:
    """Return the seconds to add the transitions and to solve the model, with that many random representative states."""
    width = float(np.mean(settings.rep_width))
    changed: dict[str, Any] = {"n_reps": min(n_reps, len(log)), "reps": "random", "random_state": 0, "rep_width": width}
    settings = replace(settings, **changed, growth=Growth())
    empty = first_model(settings, log)
    start = perf_counter()
    model = empty.extend(log, n_jobs=settings.n_jobs)
    added = perf_counter()
    model.solve()
    return added - start, perf_counter() - added


def _largest(fits: Callable[[int], bool], *, least: int = _LEAST) -> int:
    """Return the largest number up to _MOST that fits, where all smaller ones do; at least ``least``."""
    low, high = least, _MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
