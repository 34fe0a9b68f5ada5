"""What speaks against a model when it is fitted is kept in its file, and said by fit, report and judge."""

import json
from dataclasses import replace

import pytest

from kbrl import KBSF, load_model, save_model
from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.tasks import PuddleWorld

FLAG = "it promises more than anybody earned"


@pytest.fixture(scope="module")
def flagged(tmp_path_factory):
    """Return a model with a flag, the log that it learnt from, and another."""
    folder = tmp_path_factory.mktemp("flagged")
    paths = [folder / name for name in ("model.kbrl", "log.csv", "other.csv")]
    logs = [PuddleWorld().collect(1500, random_state=seed, max_steps=30) for seed in (0, 1)]
    logs[1] = logs[1].replaced(episodes=logs[1].episodes + 1000)
    for log, path in zip(logs, paths[1:]):
        write_log(log, path)
    model = KBSF(20, sample_width=0.1, rep_width=0.1, discount=0.9, random_state=0).fit(logs[0]).model_
    save_model(replace(model, flags=(FLAG,)), paths[0])
    return paths


def run(capsys, *arguments):
    main([*map(str, arguments), "-q"])
    return capsys.readouterr().out


def test_judge_says_what_spoke_against_the_model(flagged, capsys):
    model, _, other = flagged
    said = f"warning from the fit: {FLAG}."
    assert f"Note: {said}" in run(capsys, "judge", model, other)
    assert said in json.loads(run(capsys, "judge", model, other, "--json"))["warnings"]


@pytest.mark.parametrize("place", [1, 2])  # a log that was learnt, which is not judged by, and another
def test_report_says_what_spoke_against_the_model(flagged, tmp_path, capsys, place):
    pytest.importorskip("matplotlib")
    run(capsys, "report", flagged[0], flagged[place], "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8").count(f"warning from the fit: {FLAG}.") == 1


def test_fit_keeps_what_it_says(flagged, tmp_path, capsys):
    facts = json.loads(run(capsys, "fit", flagged[1], "-o", tmp_path / "model.kbrl", "--discount", "0.9", "--json"))
    assert facts["rehearsed"]
    model = load_model(tmp_path / "model.kbrl")
    assert list(model.flags) == facts["flags"]
    more = model.extend(PuddleWorld().collect(50, random_state=2))
    assert more.flags == model.flags
    other = replace(model, flags=("another", *model.flags))
    assert (model + other).flags == (*model.flags, "another")
