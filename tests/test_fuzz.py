"""The attacks of `make fuzz`, a few of each; what broke once is read again."""

import pytest

from fuzz.attacks import FOUND, attacks, run
from fuzz.seeds import CORPUS
from fuzz.soak import MOST_RISE, rise
from kbrl import load_log, load_model, load_sums
from kbrl.data.expressions import parse

SEEDS = sorted(path for path in CORPUS.iterdir() if path.is_file())


def read(path):
    if path.suffix == ".txt":
        return sum(parse(line).type == "number" for line in path.read_text().splitlines())
    if path.suffix == ".sums":
        return load_sums(path).n_episodes
    return load_model(path).n_samples if path.suffix == ".kbrl" else len(load_log(path))


@pytest.mark.parametrize("name", attacks())
def test_damaged_and_forged_files_are_refused_or_harmless(name):
    assert sum(run(name, 20, number=1).values()) >= 20


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.name)
def test_the_files_that_attacks_start_from_are_valid(path):
    assert read(path) > 0


@pytest.mark.filterwarnings("ignore")
def test_what_broke_once_breaks_no_more():
    for path in sorted(FOUND.iterdir()) if FOUND.exists() else []:
        with pytest.raises((ValueError, OSError), match=path.name):
            read(path)


@pytest.mark.parametrize(
    "memory, is_flat",
    [
        ([260.0] * 100, True),
        ([150.0 + k for k in range(100)] + [250.0] * 100, True),  # caches fill, and then it stays
        ([260.0 + (k % 7) for k in range(100)], True),
        ([259, 259, 259, 260, 260, 274, 274, 287, 301, 301], False),  # of a run whose closed clusters were kept
        ([200.0 + 0.2 * k for k in range(200)], False),
    ],
)
def test_the_long_run_says_whether_memory_is_flat(memory, is_flat):
    assert (rise(memory) < MOST_RISE) == is_flat
