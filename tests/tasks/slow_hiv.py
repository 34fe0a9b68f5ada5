"""The HIV model as slow, obvious code, the judge of the compiled one: vectorised NumPy, and plain Python."""

import numpy as np

EFFICACY = [(0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3)]  # (RTI, PI) of none, RTI, PI, both


def rates(t1, t2, i1, i2, v, e, e1, e2):
    """The six derivatives per day as Adams et al. 2004 print them; works on numbers and on arrays."""
    infected = i1 + i2
    return (
        1e4 - 0.01 * t1 - (1 - e1) * 8e-7 * v * t1,
        31.98 - 0.01 * t2 - (1 - 0.34 * e1) * 1e-4 * v * t2,
        (1 - e1) * 8e-7 * v * t1 - 0.7 * i1 - 1e-5 * e * i1,
        (1 - 0.34 * e1) * 1e-4 * v * t2 - 0.7 * i2 - 1e-5 * e * i2,
        (1 - e2) * 100 * 0.7 * infected - 13 * v - ((1 - e1) * 8e-7 * t1 + (1 - 0.34 * e1) * 1e-4 * t2) * v,
        1 + 0.3 * infected / (infected + 100) * e - 0.25 * infected / (infected + 500) * e - 0.1 * e,
    )


def step(counts, e1, e2, n_steps):
    """Take Euler steps of 0.001 day from six numbers, or from six arrays."""
    t1, t2, i1, i2, v, e = counts
    for _ in range(n_steps):
        d1, d2, d3, d4, d5, d6 = rates(t1, t2, i1, i2, v, e, e1, e2)
        t1, t2, i1 = t1 + 0.001 * d1, t2 + 0.001 * d2, i1 + 0.001 * d3
        i2, v, e = i2 + 0.001 * d4, v + 0.001 * d5, e + 0.001 * d6
    return t1, t2, i1, i2, v, e


def step_numpy(states, actions, n_steps=5000):
    """Move all patients at once, (n, 6)."""
    e1, e2 = np.array(EFFICACY)[actions].T
    return np.transpose(step(np.array(states, dtype=float).T, e1, e2, n_steps))


def step_python(state, action, n_steps=5000):
    """Move one patient."""
    return step([float(x) for x in state], *EFFICACY[action], n_steps)


def reward(state, next_state, action, *, second_cost=2000.0, from_current=False):
    """Ernst et al. 2006: immune response less virus and drugs."""
    e1, e2 = EFFICACY[action]
    judged = state if from_current else next_state
    return -0.1 * judged[4] - 20000 * e1**2 - second_cost * e2**2 + 1000 * judged[5]
