"""The demonstration does the main job on a table as people keep it, and what it says of the ward is true."""

import re
from pathlib import Path

import numpy as np
import pytest

from kbrl.cli import main
from kbrl.demo.ward_table import DRUGS, NEEDS, judged_and_true, true_return, write_ward


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return the folder of the demonstration of the ward."""
    folder = tmp_path_factory.mktemp("demo")
    main(["demo", "--only", "ward", "-o", str(folder), "--quiet"])
    return folder


def test_each_step_leaves_its_file(shown):
    assert {path.name for path in shown.iterdir()} == {"ward.csv", "ward.toml", "ward.kbrl", "ward.html"}


def test_the_judgement_covers_the_truth(shown, monkeypatch, capsys):
    monkeypatch.chdir(shown)
    main(["judge", "ward.kbrl", "ward.csv"])
    low, high = map(float, re.search(r"interval (\S+) to ([+-][\d.]+)", capsys.readouterr().out).groups())
    now, then = judged_and_true(Path("ward.kbrl"))
    assert low <= then - now <= high


def test_the_right_doses_are_better_than_those_of_the_doctors_and_than_one_dose_for_all():
    right = true_return(lambda seen: [DRUGS[need] for need in np.digitize(seen["sofa"], NEEDS)])
    others = [true_return(None), *(true_return(lambda seen, drug=drug: [drug] * len(seen["sofa"])) for drug in DRUGS)]
    assert right > max(others) + 1.0


def test_an_answer_that_is_no_drug_leaves_the_decision_to_the_doctors():
    assert true_return(lambda seen: ["as now"] * len(seen["sofa"])) == true_return(None)


def test_the_table_is_as_people_keep_them(tmp_path):
    n_rows = write_ward(tmp_path / "ward.csv", n_patients=50)
    header, *lines = (tmp_path / "ward.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == n_rows
    assert all(re.match(r"South;P\d{4};2025-\d\d-\d\d;\d+,\d;(\d+,\d+)?;(yes|no);", line) for line in lines)
    assert any(";;" in line for line in lines)  # no laboratory value
    assert header.startswith("clinic;patient;visited;sofa;lactate;ventilated;drug;score;outcome")


def test_the_table_alone_needs_no_picture(tmp_path, capsys):
    main(["demo", "--only", "table", "-o", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["ward.csv"]
    assert "It begins:" in capsys.readouterr().out
