"""The attacks of `make fuzz`, a few of each; what broke once is read again."""

import pytest

from fuzz.attacks import FOUND, attacks, run
from fuzz.seeds import CORPUS
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
