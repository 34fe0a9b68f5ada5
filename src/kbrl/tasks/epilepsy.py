"""Epilepsy suppression: stop seizures of a brain slice with as few electrical pulses as possible.

The generative model of Bush and Pineau (2009): the state is a point of an embedding of recordings; it moves as the
nearest recorded row moved, and a pulse shifts it.  Recordings are read from a folder that you give; without one they
are a SUBSTITUTE, simulated with the Epileptor, and every picture and ``repr`` says so.

Paper: section 4.3.4 and the appendix on tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_generator, as_rows, flag, one_of, positive, whole
from kbrl.data.transitions import Transitions
from kbrl.tasks.epileptor import N_COMPONENTS, SOURCE, simulate_recordings
from kbrl.tasks.nearest_row import RowModel, make_row_model, move, nearest_rows
from kbrl.tasks.recordings import Recordings, read_recordings
from kbrl.tasks.task import Task
from kbrl.trials.evaluation import Evaluation
from kbrl.trials.policies import Policy, action_indices

N_TEST_STATES = 10
TEST_SEED = 0  # of the draw of the test states
DRAWN = 1000  # decisions in a picture, the last ones


def _component_names(n: int) -> tuple[str, ...]:
    return tuple(f"component {i + 1}" for i in range(n))


class FixedFrequency:
    """Pulses at a fixed rate, whatever the state: after n calls, exactly n * hz / decisions_per_second, rounded down.

    It counts its calls, each being one decision of all rows: use a new one for each evaluation.
    """

    def __init__(self, hz: float, decisions_per_second: float = 5) -> None:
        self.hz, self.decisions_per_second = (
            _not_negative(hz, "hz"),
            positive(decisions_per_second, "decisions_per_second"),
        )
        if self.hz > self.decisions_per_second:
            raise ValueError(f"hz must be at most {decisions_per_second}, one pulse per decision, but it is {hz!r}.")
        # The decimals as they are written: 0.1 is a tenth here, so that no rounding adds up.
        self._rate = Fraction(repr(self.hz)) / Fraction(repr(self.decisions_per_second))
        self._n_calls = 0

    def __call__(self, observations: Floats) -> Integers:
        before = self._n_calls * self._rate.numerator // self._rate.denominator
        self._n_calls += 1
        after = self._n_calls * self._rate.numerator // self._rate.denominator
        return np.full(len(observations), after - before)

    def __repr__(self) -> str:
        return f"FixedFrequency({self.hz:g}, decisions_per_second={self.decisions_per_second:g})"


@dataclass(frozen=True, eq=False, repr=False)
class Fractions:
    """What a policy achieved and at what cost: the axes of the paper's figure."""

    seizures: Floats  # (n_episodes,): fraction of the decisions that lead into a seizure
    pulses: Floats  # (n_episodes,): fraction of the decisions that are pulses

    def __repr__(self) -> str:
        means = f"seizures {self.seizures.mean():.4f}, pulses {self.pulses.mean():.4f}"
        return f"Fractions({len(self.seizures)} episodes, {means})"


class Epilepsy(Task):
    """Epilepsy suppression on recordings from a folder, or by default on a SUBSTITUTE simulated with the Epileptor.

    ``recordings`` is a folder in the format of ``kbrl.tasks.recordings``, or ``Recordings``; by default the
    substitute of ``recordings_seed``, simulated when first needed and kept within the process.  A decision costs
    ``pulse_penalty`` if it is a pulse and ``seizure_penalty`` (the paper: 10, 20 or 40) if it leads into a seizure.

    Kept from the public code, each with an option for the more sensible variant:
    the row after a recording's last is the next one's first (``across_recordings=False``: last rows are never
    neighbours); an episode starts midway between two random rows (``start="row"``: in one); the noise is uniform
    from 0 to twice ``noise_scale`` times the mean size of a step (``noise_centred=True``: around 0).
    States are clipped to the recordings' range widened by a tenth on each side.  Real recordings do not lead there;
    the substitute does where pulses come faster than the 2 Hz recorded.
    Test sets: ten rows ("rows") or ten points of the range ("box"), drawn uniformly with seed 0.
    """

    name = "Epilepsy"
    source = "Bush and Pineau 2009; a substitute by default"
    actions = ("wait", "pulse")
    discount = 0.99
    max_steps = 10_000
    state_names = _component_names(N_COMPONENTS)
    test_sets = ("rows", "box")

    def __init__(
        self,
        recordings: str | PathLike[str] | Recordings | None = None,
        *,
        seizure_penalty: float = 40,
        pulse_penalty: float = 1,
        decisions_per_second: float = 5,
        noise: bool = True,
        noise_scale: float = 1e-5,
        noise_centred: bool = False,
        across_recordings: bool = True,
        start: Literal["pair", "row"] = "pair",
        recordings_seed: int = 0,
    ) -> None:
        self.seizure_penalty = _not_negative(seizure_penalty, "seizure_penalty")
        self.pulse_penalty = _not_negative(pulse_penalty, "pulse_penalty")
        self.decisions_per_second = positive(decisions_per_second, "decisions_per_second")
        self.noise = flag(noise, "noise")
        self.noise_scale = _not_negative(noise_scale, "noise_scale")
        self.noise_centred = flag(noise_centred, "noise_centred")
        self.across_recordings = flag(across_recordings, "across_recordings")
        self.start = one_of(start, ("pair", "row"), "start")
        self.recordings_seed = whole(recordings_seed, "recordings_seed", at_least=0)
        if recordings is not None and not isinstance(recordings, Recordings):
            recordings = read_recordings(recordings)
        self._given = recordings
        self.source = SOURCE if recordings is None else recordings.source
        if recordings is not None and recordings.features.shape[1] != N_COMPONENTS:
            self.state_names = _component_names(recordings.features.shape[1])

    @property
    def recordings(self) -> Recordings:
        """The recordings; the substitute is simulated now if this process has not done so yet."""
        return simulate_recordings(self.recordings_seed) if self._given is None else self._given

    @property
    def low(self) -> Floats:  # type: ignore[override]  # computed when asked for, not when constructed
        """The least value of each component that a state may have, (n_dims,)."""
        return self._model.low

    @property
    def high(self) -> Floats:  # type: ignore[override]
        """The greatest value of each component that a state may have, (n_dims,)."""
        return self._model.high

    @property
    def test_steps(self) -> int:
        """The paper's 10^5 decisions from each test state."""
        return 100_000

    def nearest_rows(self, states: Any) -> Integers:
        """Return the places of the recorded rows nearest to the states, (n,); of equally near ones the first."""
        return nearest_rows(np.array(as_rows(states, "states", n_dims=len(self.state_names))), self._model)

    def in_seizure(self, states: Any) -> Booleans:
        """Return which states are seizures: those whose nearest row is labelled so, (n,)."""
        return self._model.seizures[self.nearest_rows(states)]

    def fixed_frequency(self, hz: float) -> FixedFrequency:
        """Return the policy that gives that many pulses per second, at this task's decisions per second."""
        return FixedFrequency(hz, self.decisions_per_second)

    def fractions(self, log: Transitions | Evaluation) -> Fractions:
        """Return the fractions of seizures and pulses in a log, or in an evaluation with ``record=True``."""
        if isinstance(log, Evaluation):
            if log.log is None:
                raise ValueError("The evaluation has no log. Use evaluate(..., record=True), or evaluate_fractions.")
            log = log.log
        _, episodes = np.unique(np.zeros(len(log)) if log.episodes is None else log.episodes, return_inverse=True)
        pulsed = action_indices(log.actions, len(log), self.actions)
        counts = [np.bincount(episodes, weights) for weights in (None, self.in_seizure(log.next_states), pulsed)]
        return Fractions(counts[1] / counts[0], counts[2] / counts[0])

    def evaluate_fractions(
        self, policy: Policy, states: Any = None, random_state: Any = None, *, max_steps: int | None = None
    ) -> Fractions:
        """Run as ``evaluate`` does, and return what ``fractions`` would, without keeping a log."""
        rng = as_generator(random_state)
        limit = self.test_steps if max_steps is None else whole(max_steps, "max_steps")
        if states is None or isinstance(states, str):
            states = self.test_states(states)
        elif isinstance(states, (int, np.integer)):
            states = self.reset(int(states), rng)
        states = np.array(as_rows(states, f"states of {self.name}", n_dims=len(self.state_names)))
        seizures, pulses = np.zeros(len(states)), np.zeros(len(states))
        for _ in range(limit):
            actions = action_indices(policy(states.copy()), len(states), self.actions)
            states, in_seizure = move(states, actions, self._draw_noise(states.shape, rng), self._model)
            seizures += in_seizure
            pulses += actions
        return Fractions(seizures / limit, pulses / limit)

    def draw(self, axes: Any, states: Floats, actions: Integers | None = None) -> None:
        """Draw the first component, which resembles the field potential, with seizures shaded and pulses marked."""
        n = len(states)
        first = max(0, n - 1 - DRAWN)
        seconds = np.arange(first, n) / self.decisions_per_second
        component, seizes = states[first:, 0], self.in_seizure(states[first:])
        bottom, top = float(self.low[0]), float(self.high[0])
        width = 0.5 / self.decisions_per_second
        for begin, end in _runs(seizes):
            axes.axvspan(seconds[begin] - width, seconds[end] + width, color="tab:red", alpha=0.25, linewidth=0)
        axes.plot(seconds, component, color="black", linewidth=0.8)
        axes.plot(seconds[-1], component[-1], "o", color="black", markersize=4)
        if actions is not None:
            pulsed = first + np.flatnonzero(np.asarray(actions)[first:])
            mark = bottom + 0.06 * (top - bottom)
            axes.vlines(pulsed / self.decisions_per_second, bottom, mark, color="tab:blue", linewidth=1.0)
        right = max(seconds[-1], seconds[0] + 10.0) + width
        axes.set(xlim=(seconds[0] - width, right), ylim=(bottom, top), xlabel="seconds")
        axes.set_ylabel("first component of the field potential")
        label = "SUBSTITUTE: Epileptor" if self.recordings.is_substitute else "recordings"
        axes.set_title(f"{self.name} ({label}), decision {n - 1}\nshaded red: seizure; blue ticks: pulses", fontsize=10)

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        features = self.recordings.features
        rows = rng.integers(len(features), size=(n, 2 if self.start == "pair" else 1))
        return np.asarray(features[rows].mean(axis=1))

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        next_states, in_seizure = move(states, actions, self._draw_noise(states.shape, rng), self._model)
        rewards = -self.pulse_penalty * actions - self.seizure_penalty * in_seizure
        return next_states, rewards, np.zeros(len(states), dtype=bool)

    def _test_states(self, name: str) -> Floats:
        rng = np.random.default_rng(TEST_SEED)
        features = self.recordings.features
        if name == "rows":
            return np.array(
                features[rng.choice(len(features), size=N_TEST_STATES, replace=len(features) < N_TEST_STATES)]
            )
        return rng.uniform(features.min(axis=0), features.max(axis=0), size=(N_TEST_STATES, features.shape[1]))

    def _draw_noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        if not self.noise:
            return np.zeros(shape)
        uniform = 2.0 * rng.random(shape) - (1.0 if self.noise_centred else 0.0)
        return np.asarray(self.noise_scale * self._model.step_sizes * uniform)

    @cached_property
    def _model(self) -> RowModel:
        return make_row_model(self.recordings, across_recordings=self.across_recordings)


def _runs(flags: Booleans) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of every unbroken run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    yield from zip(edges[::2].tolist(), (edges[1::2] - 1).tolist())


def _not_negative(value: Any, name: str) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        if value == 0:
            return 0.0
        if value < 0:
            raise ValueError(f"{name} must be 0 or a number above it, but it is {value!r}. Penalties are subtracted.")
    return positive(value, name)
