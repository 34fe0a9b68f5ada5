"""Tables written piece by piece come back whole."""

import os

import numpy as np
import pytest

from kbrl.files import check_target, written_beside
from kbrl.logs.writing import SUFFIXES, table_writer
from kbrl.tables.formats import open_table, regrouped

PIECES = [
    {"x": np.array([0.1, -np.inf]), "word": np.array(["a", "b,c"]), "n": np.array([1, 2])},
    {"x": np.array([1e-300]), "word": np.array(["longer than before"]), "n": np.array([3])},
]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_pieces_come_back_as_one_table(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    with table_writer(path) as write:
        for piece in PIECES:
            write(piece)
    (batch,) = regrouped(open_table(path), {"x": "numbers", "word": "labels", "n": "numbers"}, 10)
    assert batch["x"].values.tolist() == [0.1, -np.inf, 1e-300]
    assert [batch["word"].values[code] for code in batch["word"].codes] == ["a", "b,c", "longer than before"]
    assert batch["n"].values.tolist() == [1, 2, 3]
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_fails_halfway_leaves_nothing(tmp_path, suffix):
    def fail():
        with table_writer(tmp_path / f"table{suffix}") as write:
            write(PIECES[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not os.listdir(tmp_path)


def test_paths_that_cannot_be_written_to_are_named_as_the_user_named_them(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^There is no folder .*missing\. Make it, or name another\.$"):
        check_target(tmp_path / "missing" / "log.csv")
    with pytest.raises(IsADirectoryError, match=r"is a folder\. Name a file in it\.$"):
        check_target(tmp_path)
    with pytest.raises(FileNotFoundError), written_beside(tmp_path / "missing" / "log.csv"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_does_not_show_the_hidden_name(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match=r"log\.csv'$") as error, written_beside(tmp_path / "log.csv"):
        pass
    assert ".part" not in str(error.value)
