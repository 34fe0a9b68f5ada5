"""Balance one, two or three poles on a cart by pushing it (Wieland 1991; Gomez 2003).

A failure (a pole beyond 36 degrees, the cart beyond 2.4 m) pays -1 and ends the episode, everything else pays 0;
3000 decisions of 0.02 s without one are a success.  The motion is that of uniform rods hinged to a cart, with
friction, integrated by two Runge-Kutta steps of fourth order per decision.

Paper: sections 4.3.2 (one and two poles) and 5.2.2 (three), appendix B.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import as_floats, as_rows, flag, one_of, whole
from kbrl.tasks.pole_dynamics import (
    ANGLE_LIMIT,
    CART_MASS,
    GRAVITY,
    HALF_LENGTHS,
    HINGE_FRICTION,
    MASSES,
    STEP,
    STEPS_PER_DECISION,
    TRACK_FRICTION,
    TRACK_LIMIT,
    advance,
    has_failed,
)
from kbrl.tasks.task import Task
from kbrl.trials.evaluation import Evaluation

TEST_BOX = (1.2, 0.24, *np.deg2rad([18.0, 75.0, 18.0, 150.0, 18.0, 75.0]))  # half-widths

_TEST_SETS = {1: {"paper": 3}, 2: {"a": 3, "b": 3, "c": 2}, 3: {"corners": 2}}  # levels in each variable
_COLORS = ("tab:blue", "tab:orange", "tab:purple")
_STRIP_SECONDS = 10.0


class PoleBalancing(Task):
    """Pole balancing with ``n_poles`` 1, 2 (a long and a short one) or 3 (long, short, long).

    A state is (x, x_dot, theta_1, theta_1_dot, ...) in metres, radians and seconds; angle 0 is upright.

    gravity: "down" is correct physics.  "up" lets poles hang upwards, so that the upright position is stable: what
        the paper's simulator very probably had, since its rates for two and three poles are out of reach otherwise.
    forces: the actions, in newtons: (-10, 10), (-10, 0, 10), or your own list.
    track_friction: whether the track has friction; some public versions leave it out.
    start: episodes start at the "origin", uniformly in the "test box", or in your own box, given by its
        half-widths (n_dims,).

    ``low`` and ``high`` hold for every episode from the start box or the test states: an episode goes no farther
    than the failure limits and one decision, and on a bounded track bounded forces give bounded speeds.

    Test sets put each variable at -w, 0, +w (or only -w, +w) with w = 1.2 m, 0.24 m/s, 18 degrees and 75 degrees/s
    (150 for the short pole).  The paper is not clear about two poles: "a" keeps the cart at rest in the middle.  How
    many states can be balanced at all with -10 or 10 N (proved by ``experiments.feasibility``, budget up to 2e8):

        poles  test set             states  can be balanced  cannot  not known
        1      "paper" (3^4)            81               73       6          2
        2      "a" (3^4)                81               43      38          0
        2      "b" (3^6)               729              385     296         48
        2      "c" (2^6)                64               30      34          0
        3      "corners" (2^8)         256               28     212         16

    With ``gravity="up"`` all of them can.  " cells" after a name takes the centres of as many cells: 2/3 w, or w/2.
    """

    name = "PoleBalancing"
    source = "Wieland 1991, Gomez 2003"
    discount = 0.99
    max_steps = 3000

    def __init__(
        self,
        n_poles: int = 1,
        *,
        gravity: Literal["down", "up"] = "down",
        forces: Sequence[float] | Floats = (-10.0, 10.0),
        track_friction: bool = True,
        start: Any = "origin",
    ) -> None:
        self.n_poles = whole(n_poles, "n_poles")
        if self.n_poles > 3:
            raise ValueError(f"n_poles must be 1, 2 or 3, but it is {n_poles!r}.")
        self.gravity = one_of(gravity, ("down", "up"), "gravity")
        self.forces = _as_forces(forces)
        self.track_friction = flag(track_friction, "track_friction")
        self.start = start
        self.actions = tuple(f"{np.format_float_positional(force, trim='-')} N" for force in self.forces)
        poles = range(1, self.n_poles + 1)
        self.state_names = ("x", "x_dot", *(f"theta_{i}{end}" for i in poles for end in ("", "_dot")))
        names = tuple(_TEST_SETS[self.n_poles])
        self.test_sets = names + tuple(f"{name} cells" for name in names)
        self._test_box = np.array(TEST_BOX[: len(self.state_names)])
        self._start_box = _as_box(start, self._test_box)
        self.high = _bounds(np.maximum(self._start_box, self._test_box), max(map(abs, self.forces)))
        self.low = -self.high
        self._forces = np.array(self.forces)

    def fails(self, states: Any) -> Booleans:
        """Return in which states a pole has fallen or the cart has left the track, (n,)."""
        return has_failed(np.array(as_rows(states, f"states of {self.name}", n_dims=len(self.state_names))))

    @staticmethod
    def success_rate(evaluation: Evaluation) -> float:
        """Return the share of episodes without a failure: those that only the time limit has cut."""
        return float(1.0 - evaluation.terminated.mean())

    def draw(self, axes: Any, states: Floats, actions: Integers | None = None) -> None:
        """Draw cart, poles and force as they are now, and below them the angles of the last ten seconds."""
        axes.axis("off")
        force = None if actions is None or len(actions) == 0 else self.forces[actions[-1]]
        _draw_cart(axes.inset_axes((0.02, 0.5, 0.96, 0.5)), states[-1], force)
        _draw_angles(axes.inset_axes((0.13, 0.09, 0.83, 0.33)), states)

    def _reset(self, n: int, rng: np.random.Generator) -> Floats:
        if not self._start_box.any():
            return np.zeros((n, len(self.state_names)))
        return rng.uniform(-self._start_box, self._start_box, (n, len(self.state_names)))

    def _step(self, states: Floats, actions: Integers, rng: np.random.Generator) -> tuple[Floats, Floats, Booleans]:
        gravity = -GRAVITY if self.gravity == "down" else GRAVITY  # the equations' sign: angle 0 is upright
        friction = TRACK_FRICTION if self.track_friction else 0.0
        next_states = advance(states, self._forces[actions], gravity, track_friction=friction)
        fails = has_failed(next_states)
        return next_states, np.where(fails, -1.0, 0.0), fails

    def _test_states(self, name: str) -> Floats:
        name, _, cells = name.partition(" ")
        n_levels = _TEST_SETS[self.n_poles][name]
        levels = np.array([-1.0, 0.0, 1.0] if n_levels == 3 else [-1.0, 1.0])
        if cells:
            levels *= (n_levels - 1) / n_levels
        at_rest = 2 if name == "a" else 0  # the cart stands in the middle
        rows = [(0.0,) * at_rest + row for row in product(levels, repeat=len(self._test_box) - at_rest)]
        return np.array(rows) * self._test_box

    def __repr__(self) -> str:
        options = ("n_poles", "gravity", "forces", "track_friction", "start")
        return f"{self.name}({', '.join(f'{name}={getattr(self, name)!r}' for name in options)})"


def _as_forces(forces: Any) -> tuple[float, ...]:
    array = as_floats(forces, "forces")
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all() or len(np.unique(array)) < len(array):
        raise ValueError(f"forces must list different finite numbers, at least one, such as (-10, 10), not {forces!r}.")
    return tuple(array.tolist())


def _as_box(start: Any, test_box: Floats) -> Floats:
    """Return the half-widths of the box of start states."""
    if isinstance(start, str):
        return test_box if one_of(start, ("origin", "test box"), "start") == "test box" else np.zeros(len(test_box))
    box = as_floats(start, "start")
    if box.shape != test_box.shape or not (np.isfinite(box) & (box >= 0)).all() or has_failed(np.array([box]))[0]:
        raise ValueError(
            f"start must be 'origin', 'test box' or {len(test_box)} half-widths not below 0 and within the failure "
            f"limits (2.4 m, {ANGLE_LIMIT:.4f} rad), but it is {start!r}."
        )
    return box


def _bounds(start_box: Floats, strongest: float) -> Floats:
    """Bound what can be seen in an episode: the failure limits, and one decision beyond them.

    Where |q| <= Q and |q''| <= A, a motion that starts at speed v never exceeds sqrt(v^2 + 4 A Q).  The largest
    accelerations depend on the speeds in turn, so both are iterated, up from the speeds of the start.
    """
    limits = np.full(len(start_box) // 2, ANGLE_LIMIT)
    limits[0] = TRACK_LIMIT
    decision = STEP * STEPS_PER_DECISION
    inside = speeds = start_box[1::2]
    for _ in range(300):
        before = speeds
        inside = np.sqrt(start_box[1::2] ** 2 + 4.0 * _accelerations(inside, strongest, np.sin(ANGLE_LIMIT)) * limits)
        speeds = inside + decision * _accelerations(speeds, strongest, 1.0)
        if (speeds <= (1 + 1e-9) * before).all():
            return 1.01 * np.stack([limits + decision * speeds, speeds], axis=1).ravel()  # 1 % for rounding
        if speeds.max() > 1e6:
            break
    raise ValueError(
        f"forces and start must keep the speeds bounded during a decision, but with forces up to {strongest:g} N and "
        f"start speeds up to {start_box[1::2].max():g} they do not. Take forces below 100 N and speeds below 10."
    )


def _accelerations(speeds: Floats, strongest: float, sine: float) -> Floats:
    """Bound the accelerations of cart and poles at these speeds, where no sine of an angle is larger."""
    turning = speeds[1:]
    lengths, masses = np.array(HALF_LENGTHS[: len(turning)]), np.array(MASSES[: len(turning)])
    rubbing = HINGE_FRICTION * turning / (masses * lengths)
    pulls = masses * (lengths * turning**2 * sine + 0.75 * (rubbing + 0.5 * GRAVITY))
    cart = (strongest + TRACK_FRICTION + pulls.sum()) / (CART_MASS + 0.25 * masses.sum())
    return np.append(cart, 0.75 / lengths * (cart + rubbing + GRAVITY * sine))


def _draw_cart(axes: Any, state: Floats, force: float | None) -> None:
    from matplotlib.patches import Rectangle

    x, angles = state[0], state[2::2]
    axes.plot([-TRACK_LIMIT, TRACK_LIMIT], [0, 0], color="black", linewidth=1)
    axes.vlines([-TRACK_LIMIT, TRACK_LIMIT], 0, 0.25, color="tab:red", linewidth=4)
    axes.add_patch(Rectangle((x - 0.3, 0.02), 0.6, 0.2, facecolor="lightgray", edgecolor="black"))
    hinges = x + 0.2 * (np.arange(len(angles)) - 0.5 * (len(angles) - 1))  # drawn apart, so that all can be seen
    for hinge, angle, half_length, color in zip(hinges, angles, HALF_LENGTHS, _COLORS):
        length = 2 * half_length * (1 if half_length > 0.1 else 4)
        tip = (hinge + length * np.sin(angle), 0.22 + length * np.cos(angle))
        axes.plot([hinge, tip[0]], [0.22, tip[1]], color=color, linewidth=5)
    text = f"x = {x:+.2f} m"
    if force is not None:
        text += f"\nforce {force:g} N"
        head, tail = (x - distance * np.sign(force) for distance in (0.35, 0.8))
        axes.annotate("", (head, 0.12), (tail, 0.12), arrowprops={"arrowstyle": "->", "color": "tab:green", "lw": 2})
    axes.text(-2.4, 1.3, text, va="top")
    if has_failed(state[None])[0]:
        axes.text(-2.4, 0.72, "failed", va="top", color="tab:red", weight="bold")
    if len(angles) > 1:
        axes.text(2.4, 1.3, "short pole drawn\n4 times its length", va="top", ha="right", color=_COLORS[1])
    axes.set(xlim=(-2.75, 2.75), ylim=(-0.1, 1.35), aspect="equal")
    axes.axis("off")


def _draw_angles(axes: Any, states: Floats) -> None:
    seconds = STEP * STEPS_PER_DECISION * np.arange(len(states))
    first = max(0.0, seconds[-1] - _STRIP_SECONDS)
    recent = seconds >= first
    for i, color in zip(range(states.shape[1] // 2 - 1), _COLORS):
        label = f"pole {i + 1} ({'long' if HALF_LENGTHS[i] > 0.1 else 'short'})"
        axes.plot(seconds[recent], np.rad2deg(states[recent, 2 + 2 * i]), color=color, linewidth=1.5, label=label)
    axes.axhline(0, color="gray", linewidth=0.5)
    for limit in (-36, 36):
        axes.axhline(limit, color="tab:red", linestyle="--", linewidth=1)
    axes.set(xlim=(first, max(first + 1.0, seconds[-1])), ylim=(-45, 45), yticks=[-36, -18, 0, 18, 36])
    axes.set(xlabel="time (s)", ylabel="angle (degrees)")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize="small", ncols=3, frameon=False)
