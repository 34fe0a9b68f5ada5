"""A table of two episodes with four rows each, to be changed by tests of columns."""

import warnings

import pytest

from kbrl import load_log
from kbrl.checks import KbrlWarning

NAN = float("nan")
quietly = pytest.mark.filterwarnings(
    "ignore:Missing values of", "ignore:.*rows are left out", "ignore:.*without an earlier value"
)


def table(**changes):
    """Two episodes of four rows."""
    columns = {
        "who": list("aaaabbbb"),
        "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "drug": list("pqpqpqpq"),
        "gain": [0.0, 0, 0, 1, 0, 0, 0, 1],
        "over": [0, 0, 0, 1, 0, 0, 0, 1],
    }
    return columns | changes


ROLES = {"state": "x", "action": "drug", "reward": "gain", "terminated": "over", "episode": "who"}


def load(rows, **columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbrlWarning)
        return load_log(rows, columns=ROLES | columns)
