"""What tests on clusters of worker processes share."""

import time

import numpy as np

from kbrl import KBSF

SPARSE = {"sample_neighbors": 4, "rep_neighbors": 3}


def learner(**changes):
    settings = {"sample_width": 0.3, "rep_width": 0.2, "discount": 0.9, "random_state": 0}
    return KBSF(20, **(settings | changes))


def cluster_elsewhere():
    from distributed import LocalCluster

    return LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0", protocol="tcp")


def assert_bits(model, expected):
    """The exact-sparse model is the same, bit for bit."""
    for name in ("distances", "rewards", "next_states", "terminals", "multiplicities", "counts"):
        assert getattr(model.statistics_, name).tobytes() == getattr(expected.statistics_, name).tobytes()
    for name in ("reps_", "scale_", "rep_q_", "growth_", "action_labels_"):
        assert getattr(model, name).tobytes() == getattr(expected, name).tobytes()


def assert_close(model, expected):
    """The dense model is the same but for the order in which its sums were added."""
    for name in ("reps_", "scale_", "growth_", "action_labels_"):
        assert getattr(model, name).tobytes() == getattr(expected, name).tobytes()
    np.testing.assert_allclose(model.mdp_.stacked, expected.mdp_.stacked, rtol=1e-12)
    np.testing.assert_allclose(model.mdp_.rewards, expected.mdp_.rewards, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.statistics_.weight, expected.statistics_.weight, rtol=1e-12)
    np.testing.assert_array_equal(model.statistics_.counts, expected.statistics_.counts)
    found, wanted = (fit.statistics_.effective_cases() for fit in (model, expected))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def promised(log, *, n_parts=8, seconds=0.0):
    """Return promises of the parts of a log; each takes a while to keep."""

    from dask import delayed

    def slowly(part):
        time.sleep(seconds)
        return part

    return [delayed(slowly)(part) for part in log.chunks(-(-len(log) // n_parts))]
