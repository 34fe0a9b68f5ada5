"""Model files of format 1, written by version 0.1.0 at commit f4ebbd4, still load and answer as they did.

``answers.json`` holds what the models answered when they were written.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from kbrl.storage.model_file import load_model, save_model

FOLDER = Path(__file__).parent.parent / "format_1"
ANSWERS = json.loads((FOLDER / "answers.json").read_text())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_of_format_1_answers_as_it_did_when_it_was_written(name):
    model, expected = load_model(FOLDER / f"{name}.kbrl"), ANSWERS[name]
    from_reps = model.rep_q_function(model.scaled(expected["states"]))
    np.testing.assert_allclose(from_reps, expected["q_from_reps"], rtol=1e-12)
    np.testing.assert_allclose(model.solution.values, expected["rep_values"], rtol=1e-12)
    assert model.predict(expected["states"]).tolist() == expected["predict"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_file_of_format_1_can_be_saved_and_loaded_again(name, tmp_path):
    model, states = load_model(FOLDER / f"{name}.kbrl"), ANSWERS[name]["states"]
    save_model(model, tmp_path / "again.kbrl")
    assert load_model(tmp_path / "again.kbrl").q_values(states).tolist() == model.q_values(states).tolist()
