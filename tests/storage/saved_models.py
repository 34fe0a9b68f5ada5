"""Models to save, files of them, and what must be the same in a model that was saved and loaded."""

import numpy as np

from kbrl import KBSF, Growth, Solver, Variant
from kbrl.insight.coverage import coverage
from kbrl.model.model import as_model
from kbrl.storage.model_file import FORMAT, VERSION, save_model
from kbrl.storage.sealed_file import read_sealed, write_sealed
from samples import random_log

LOG, LATER = random_log(n=120, seed=1), random_log(n=80, seed=2)
STATES = np.random.default_rng(0).random((300, 2))
REPS = np.random.default_rng(5).random((12, 2))

FORMS = {
    "dense": {},
    "dense sums, sparse D": {"rep_neighbors": 3},
    "neighbours": {"sample_neighbors": 3},
    "neighbours, sparse D": {"sample_neighbors": 3, "rep_neighbors": 2},
    "per chunk": {"sample_neighbors": 3, "variant": Variant(neighborhoods="per_chunk")},
    "per chunk, sparse": {"sample_neighbors": 3, "rep_neighbors": 2, "variant": Variant(neighborhoods="per_chunk")},
    "hard": {"variant": Variant(aggregation="hard")},
    "gaussian": {"variant": Variant(profile="gaussian")},
    "uniform": {"variant": Variant(profile="uniform"), "sample_width": 0.5},
    "another norm": {"variant": Variant(norm=1.5), "rep_neighbors": 3},
    "the largest difference": {"variant": Variant(norm=np.inf)},
    "a width a representative state": {"reps": REPS, "rep_width": np.linspace(0.1, 0.5, 12)},
    "a fixed number of sweeps": {"solver": Solver(sweeps=7)},
    "growing": {"growth": Growth(distance=0.3)},
    "growing neighbours": {"growth": Growth(below=0.01), "sample_neighbors": 2},
    "terminals continue": {"variant": Variant(terminals="continue")},
    "samples": {"variant": Variant(q_function="samples")},
    "samples with neighbours": {"variant": Variant(q_function="samples"), "sample_neighbors": 4},
    "given scaling": {"scaling": np.array([1.0, 2.0])},
    "no scaling, range": {"scaling": "range", "solver": Solver(method="policy iteration", tolerance=1e-4)},
}


def fitted(log=LOG, **settings):
    return KBSF(**({"n_reps": 12, "random_state": 0} | settings)).fit(log)


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def assert_same_model(one, other):
    one, other = as_model(one), as_model(other)
    for name in ("reps", "growth", "action_labels"):
        assert_same_bits(getattr(one, name), getattr(other, name))
    for name in ("q", "values", "policy"):
        assert_same_bits(getattr(one.solution, name), getattr(other.solution, name))
    assert_same_bits(one.coordinates.scale, other.coordinates.scale)
    assert_same_bits(one.q_values(STATES), other.q_values(STATES))
    assert_same_bits(one.sums.log_mass(), other.sums.log_mass())
    assert_same_bits(coverage(one, STATES).support, coverage(other, STATES).support)
    assert one.n_samples == other.n_samples
    assert repr(KBSF.with_model(one)) == repr(KBSF.with_model(other))


def small_file(tmp_path):
    path = tmp_path / "model.kbrl"
    save_model(KBSF(n_reps=3, random_state=0).fit(random_log(n=12)), path, columns=["x", "y"])
    return path, path.read_bytes()


def resealed(path, change_facts=None, change_arrays=None):
    """Write the file anew, with a valid seal around changed contents."""
    facts, arrays, _ = read_sealed(path, FORMAT, VERSION)
    if change_facts:
        change_facts(facts)
    if change_arrays:
        change_arrays(arrays)
    with open(path, "wb") as file:
        write_sealed(file, FORMAT, VERSION, facts, arrays)
