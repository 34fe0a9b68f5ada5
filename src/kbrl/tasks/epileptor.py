"""SUBSTITUTE recordings for the epilepsy task, simulated with the Epileptor (Jirsa et al. 2014): not real data.

Five slices are stimulated at 0, 0.5, 1 and 2 Hz.  The field potential is delay-embedded (15 lags over 1.05 s), joined
by a fading trace of the pulses given, and projected on five principal components.  Bush and Pineau added the time
since the last pulse; the trace is that in a form to which a pulse adds a constant.  Without it, and with recorded
pulses left in the moves, seizures only rise with the rate.  With both, their fraction up to 2 Hz is the Epileptor's
own within 0.03: largest at 0 Hz, least at 1 to 1.5 Hz.  Beyond 2 Hz, where nothing was recorded, it is too large.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Booleans, Floats, Integers
from kbrl.checks import whole
from kbrl.numba_cache import njit
from kbrl.tasks.recordings import SEIZURE, Recordings

SOURCE = "SUBSTITUTE: simulated with the Epileptor, not recorded"
SLICES = (-2.05, -2.0, -1.95, -1.9, -1.85)  # x0: how easily a slice falls into seizure
RATES = (0.0, 0.5, 1.0, 2.0)  # Hz
DECISIONS_PER_SECOND = 5

STEP = 0.05  # of Euler and Maruyama, in the Epileptor's unit of time
STEPS_PER_SAMPLE = 12  # a sample of the potential is its mean over 0.6 units
SAMPLES_PER_DECISION = 8  # a decision lasts 4.8 units, so that 1 Hz is a pulse every 24 units
PULSE_STEPS = 20  # a pulse lasts 1 unit,
PULSE_HEIGHT = 2.0  # and is added to x1'
SLOW_TIME = 2857.0  # time constant of z, which brings seizures on and ends them
LEVEL_TIME = 20.0  # of the low-pass filter of x1,
LEVEL_OF_SEIZURE = -1.0  # which tells seizures: about -1.7 in quiet, about 0 in seizure
NOISE = np.array([0.025, 0.025, 0.25, 0.25])  # on x1, y1, x2, y2, per square root of a unit
START = (-1.6, -11.0, 3.5, -0.9, 0.0, -0.16, -1.6)  # x1, y1, z, x2, y2, u, level
WARM_UP = 500  # decisions that are thrown away

N_LAGS = 15
SAMPLES_PER_LAG = 3  # 1.8 units are 0.075 s
TRACE_KEPT = 0.5  # of the trace, from one decision to the next
TRACE_HEIGHT = 3.0  # what a pulse adds to it: enough to reach the leading components
N_COMPONENTS = 5


@lru_cache(maxsize=4)
def simulate_recordings(seed: int = 0, *, n_rows: int = 2000) -> Recordings:
    """Return substitute recordings, 20 of ``n_rows`` rows each; the seed decides the Epileptor's noise."""
    rng = np.random.default_rng(whole(seed, "recordings_seed", at_least=0))
    n = whole(n_rows, "n_rows", at_least=20)
    parts = [_record(excitability, rate, n, rng) for excitability in SLICES for rate in RATES]
    embedded, pulses, seizures = (np.concatenate(part) for part in zip(*parts))
    recordings = np.repeat(np.arange(1, len(parts) + 1), n)
    features = principal_components(embedded, N_COMPONENTS)
    shift = pulse_shift(features, pulses, recordings)
    magnitude = float(np.linalg.norm(shift))
    labels = np.where(seizures, SEIZURE, 1)
    return Recordings(
        features, labels, recordings, shift / magnitude, magnitude, pulses, source=SOURCE, is_substitute=True
    )


def simulate_potential(excitability: float, pulses: Booleans, rng: np.random.Generator) -> tuple[Floats, Booleans]:
    """Simulate one slice with the given pulses, (n,), one per decision.

    Returns the potential x2 - x1, (n, SAMPLES_PER_DECISION), and whether each decision begins in a seizure, (n,).
    """
    normals = rng.standard_normal((len(pulses), SAMPLES_PER_DECISION * STEPS_PER_SAMPLE, 4))
    potential, level = _integrate(excitability, pulses, NOISE * np.sqrt(STEP) * normals)
    return potential, level > LEVEL_OF_SEIZURE


def pulses_at(rate: float, n: int) -> Booleans:
    """Return at which of n decisions a rate that is a multiple of 0.5 Hz gives a pulse, (n,)."""
    return np.diff(np.arange(n + 1) * rate // DECISIONS_PER_SECOND) > 0


def principal_components(rows: Floats, n_components: int) -> Floats:
    """Project on the directions of largest variance; each one's largest entry is positive."""
    centred = rows - rows.mean(axis=0)
    # einsum sums in one order; a BLAS product may round differently with the number of its threads.
    _, directions = np.linalg.eigh(np.einsum("ni,nj->ij", centred, centred) / len(rows))
    leading = directions[:, ::-1][:, :n_components]
    leading = leading * np.sign(leading[np.abs(leading).argmax(axis=0), np.arange(n_components)])
    return np.einsum("ni,ij->nj", centred, leading)


def pulse_shift(features: Floats, pulses: Booleans, recordings: Integers) -> Floats:
    """Estimate what a pulse adds to the next row: steps of pulsed rows minus those of their nearest unpulsed rows."""
    has_next = recordings[1:] == recordings[:-1]
    steps = np.diff(features, axis=0)
    pulsed = np.flatnonzero(has_next & pulses[:-1])
    unpulsed = np.flatnonzero(has_next & ~pulses[:-1])
    _, nearest = cKDTree(features[unpulsed]).query(features[pulsed])
    shift: Floats = (steps[pulsed] - steps[unpulsed[nearest]]).mean(axis=0)
    return shift


def _record(
    excitability: float, rate: float, n_rows: int, rng: np.random.Generator
) -> tuple[Floats, Booleans, Booleans]:
    """Return n delay vectors with the pulse trace, (n_rows, N_LAGS + 1), the pulses and the seizures."""
    pulses = pulses_at(rate, WARM_UP + n_rows)
    potential, seizures = simulate_potential(excitability, pulses, rng)
    kept = slice(WARM_UP, None)
    embedded = np.column_stack([_lagged(potential)[kept], _trace(pulses)[kept]])
    return embedded, pulses[kept], seizures[kept]


def _lagged(potential: Floats) -> Floats:
    """Return the mean potential in each of the lags before each decision, (n, N_LAGS); the first rows have too few."""
    sums = np.concatenate([[0.0], np.cumsum(potential)])
    ends = np.arange(len(potential)) * SAMPLES_PER_DECISION
    edges = np.maximum(ends[:, None] - SAMPLES_PER_LAG * np.arange(N_LAGS + 1), 0)  # (n, N_LAGS + 1)
    return -np.diff(sums[edges], axis=1) / SAMPLES_PER_LAG


def _trace(pulses: Booleans) -> Floats:
    """Return what is left, at each decision, of the pulses before it, (n,)."""
    trace = np.zeros(len(pulses))
    for t in range(1, len(pulses)):
        trace[t] = TRACE_KEPT * trace[t - 1] + TRACE_HEIGHT * pulses[t - 1]
    return trace


@njit(cache=True, nogil=True)
def _integrate(excitability: float, pulses: Booleans, kicks: Floats) -> tuple[Floats, Floats]:
    """Integrate the Epileptor; ``kicks`` is the noise of each step, (n, steps per decision, 4)."""
    n, n_steps = kicks.shape[0], kicks.shape[1]
    potential, level_at = np.zeros((n, SAMPLES_PER_DECISION)), np.empty(n)
    x1, y1, z, x2, y2, u, level = START
    for t in range(n):
        level_at[t] = level
        for k in range(n_steps):
            potential[t, k // STEPS_PER_SAMPLE] += (x2 - x1) / STEPS_PER_SAMPLE
            pulse = PULSE_HEIGHT if pulses[t] and k < PULSE_STEPS else 0.0
            f1 = x1 * x1 * x1 - 3.0 * x1 * x1 if x1 < 0 else (x2 - 0.6 * (z - 4.0) * (z - 4.0)) * x1
            f2 = 0.0 if x2 < -0.25 else 6.0 * (x2 + 0.25)
            dx1 = y1 - f1 - z + 3.1 + pulse
            dy1 = 1.0 - 5.0 * x1 * x1 - y1
            dz = (4.0 * (x1 - excitability) - z) / SLOW_TIME
            dx2 = -y2 + x2 - x2 * x2 * x2 + 0.45 + 2.0 * u - 0.3 * (z - 3.5)
            dy2 = (f2 - y2) / 10.0
            du = -0.01 * (u - 0.1 * x1)
            level += STEP * (x1 - level) / LEVEL_TIME
            x1 += STEP * dx1 + kicks[t, k, 0]
            y1 += STEP * dy1 + kicks[t, k, 1]
            z += STEP * dz
            x2 += STEP * dx2 + kicks[t, k, 2]
            y2 += STEP * dy2 + kicks[t, k, 3]
            u += STEP * du
    return potential, level_at
