"""The world that the lines make, as the compiled loops need it: arrays, in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.lines.cells import nearest_cells


class Near(NamedTuple):
    """Which representative states are near each other."""

    reps: Floats  # (n_reps, n_dims)
    graph: Integers  # (n_reps, n_near)
    around: Floats  # (n_reps, n_dims, n_near): where the neighbours in the graph are, for distances to all at once


class Moves(NamedTuple):
    """What a step does."""

    lines: Floats  # (n_actions, n_reps, n_targets, 1 + n_dims); where steps have durations there is one target more
    limits: Floats  # (n_actions, n_reps, 4 or 6)
    known: Booleans  # (n_actions, n_reps)
    noise: Floats  # (n_actions, n_reps, n_dims, n_dims); empty where successors are not spread


class Ground(NamedTuple):
    """Where states can be."""

    span: Floats  # (2, n_dims)
    circles: Integers  # (n_circles, 2): pairs of variables that lie on a circle
    circle: Floats  # (n_circles, 5): its centre, scaled, the scales of the two variables, and its radius
    levels: Integers  # (n_groups, 2): the first variable of a category, and the one after its last; or a flag alone
    units: Floats  # (2, n_dims): the centre and the scale of each variable


class Rules(NamedTuple):
    """What plans may do."""

    reach: Floats  # (n_reps,): a plan must not end farther from the nearest representative state
    offered: Booleans  # (n_actions, n_reps): decisions that plans may have; empty: all
    doubts: Floats  # (n_actions, n_reps): what a step loses because little is known of the action; empty: nothing


class World(NamedTuple):
    """What the loops need: the lines, and what may be done where."""

    reps: Floats
    columns: Floats  # (n_dims, n_reps): the representative states again
    graph: Integers
    around: Floats
    lines: Floats
    limits: Floats
    known: Booleans
    noise: Floats
    span: Floats
    circles: Integers
    circle: Floats
    levels: Integers
    units: Floats
    behaviour: Floats  # (n_actions, n_reps, 1 + n_dims): lines of the shares of the actions; empty: all are usual
    usual: float  # times the largest share: what an action needs to begin a plan
    reach: Floats
    offered: Booleans
    doubts: Floats

    @property
    def near(self) -> Near:
        """Which representative states are near each other."""
        return Near(self.reps, self.graph, self.around)

    @property
    def moves(self) -> Moves:
        """What a step does."""
        return Moves(self.lines, self.limits, self.known, self.noise)

    @property
    def ground(self) -> Ground:
        """Where states can be."""
        return Ground(self.span, self.circles, self.circle, self.levels, self.units)

    @property
    def rules(self) -> Rules:
        """What plans may do."""
        return Rules(self.reach, self.offered, self.doubts)

    def cells(self, states: Floats) -> Integers:
        """Return the representative state nearest to each state, (n,)."""
        return nearest_cells(own_rows(states), self.columns)


_REP_AXES = {"reps": 0, "columns": 1, "graph": 0, "around": 0, "lines": 1, "limits": 1, "known": 1, "noise": 1}
_REP_AXES |= {"behaviour": 1, "reach": 0}


def side_by_side(worlds: Sequence[World]) -> World:
    """Return worlds over the same ground as one: the cells of each come after those of the worlds before it.

    No representative state is near one of another world, so that whoever starts in a world stays there.
    """
    first, sizes = worlds[0], [len(world.reps) for world in worlds]
    for name in ("span", "circles", "circle", "levels", "units"):
        assert all(np.array_equal(getattr(world, name), getattr(first, name)) for world in worlds), name
    joined = {
        name: np.ascontiguousarray(np.concatenate([getattr(world, name) for world in worlds], axis=axis))
        for name, axis in _REP_AXES.items()
    }
    shift = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    return first._replace(**joined | {"graph": joined["graph"] + shift[:, None]})


def own_rows(states: Floats) -> Floats:
    """Return states as the loops are compiled for: row after row, and writable; a copy only where they are not."""
    return np.require(states, requirements=("C", "W"))
