"""kbrl.fit: from every kind of log the same model, as the command kbrl fit makes it."""

import numpy as np
import pytest

import kbrl
from kbrl import open_log
from kbrl.cli import main
from kbrl.logs.writing import as_columns, write_log
from kbrl.tasks import PuddleWorld


@pytest.fixture(scope="module")
def log():
    return PuddleWorld().collect(1500, random_state=0)


def assert_same(one, other):
    assert one.settings.order == other.settings.order
    np.testing.assert_array_equal(one.basis.reps, other.basis.reps)
    np.testing.assert_array_equal(one.solution.values, other.solution.values)


def test_it_makes_the_model_of_the_command_from_any_kind_of_log(log, tmp_path):
    path = tmp_path / "log.csv"
    write_log(log, path)
    arguments = ["fit", str(path), "-o", str(tmp_path / "made.kbrl"), "--quiet", "--discount", "0.95"]
    main(arguments)
    by_command = kbrl.load_model(tmp_path / "made.kbrl")
    for source in (log, open_log(path), path, as_columns(log)):
        assert_same(kbrl.fit(source, discount=0.95, random_state=0), by_command)


def test_what_is_given_is_not_chosen(log):
    model = kbrl.fit(log, order=0, n_reps=20, random_state=0)
    assert (model.settings.order, model.basis.n_reps) == (0, 20)


def test_an_unknown_setting_is_refused_by_name(log):
    with pytest.raises(TypeError, match="n_representatives"):
        kbrl.fit(log, n_representatives=20)


def test_chunks_that_can_be_read_only_once_are_refused_with_a_way_out(log):
    with pytest.raises(TypeError, match=r"read twice.*it is generator.*kbrl.join"):
        kbrl.fit(log.chunks(100))


def test_columns_belong_to_tables(log):
    with pytest.raises(TypeError, match="columns"):
        kbrl.fit(log, columns={"state": "x"})
