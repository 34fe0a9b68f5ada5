"""kbrl fit --hold-out and kbrl judge: verdict, exit status, sums of sites, what is refused."""

import json

import pytest

from kbrl.cli import main
from kbrl.logs.writing import write_log
from kbrl.storage.model_file import load_model
from kbrl.tasks import PuddleWorld


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judging")
    log = PuddleWorld().collect(12000, random_state=0, max_steps=60)
    write_log(log, folder / "log.parquet")
    write_log(log[log.episodes % 2 == 0], folder / "even.parquet")
    write_log(log[log.episodes % 2 == 1], folder / "odd.parquet")
    options = ["--reps", "60", "--sample-width", "0.2", "--rep-width", "0.2", "--discount", "0.95", "--quiet"]
    main(["fit", str(folder / "log.parquet"), "-o", str(folder / "half.kbrl"), "--hold-out", "0.5", *options])
    main(["fit", str(folder / "even.parquet"), "-o", str(folder / "even.kbrl"), *options])
    return folder


def ran(capsys, *arguments):
    """Run the command; return its exit status and what it printed."""
    try:
        main([*map(str, arguments)])
        status = 0
    except SystemExit as stopped:
        status = stopped.code
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_episodes_held_out_are_found_again_and_judged_by(folder, capsys):
    status, out, _ = ran(capsys, "judge", folder / "half.kbrl", folder / "log.parquet", "--json")
    found = json.loads(out)
    model = load_model(folder / "half.kbrl")
    assert status == 0
    assert model.held_out == 0.5
    assert model.n_samples + found["n_rows"] == 12000
    assert found["verdict"] == "better"


def test_the_exit_status_says_whether_the_verdict_is_the_one_required(folder, capsys):
    call = ("judge", folder / "half.kbrl", folder / "log.parquet", "--require")
    assert ran(capsys, *call, "better")[0] == 0
    status, _, err = ran(capsys, *call, "worse")
    assert status == 3
    assert "'better', and 'worse' is required" in err


def test_a_log_that_was_learnt_from_is_refused_with_the_number_of_episodes(folder, capsys):
    status, _, err = ran(capsys, "judge", folder / "even.kbrl", folder / "log.parquet")
    assert status == 1
    assert "episodes were learnt from" in err
    assert "--hold-out" in err
    assert ran(capsys, "judge", folder / "even.kbrl", folder / "log.parquet", "--allow-learnt")[0] == 0


def test_sums_of_two_sites_are_added_up_and_those_that_do_not_fit_are_refused(folder, capsys, tmp_path):
    odd = folder / "odd.parquet"
    first, second = tmp_path / "first.sums", tmp_path / "second.sums"
    write_log(PuddleWorld().collect(4000, random_state=5, max_steps=60), tmp_path / "new.parquet")
    assert ran(capsys, "judge", folder / "even.kbrl", odd, "--sums", first)[0] == 0
    call = ("judge", folder / "even.kbrl", tmp_path / "new.parquet", "--allow-learnt", "--sums", second)
    assert ran(capsys, *call, "--like", first)[0] == 0
    status, out, _ = ran(capsys, "judge", first, second, "--json")
    assert status == 0
    assert json.loads(out)["n_rows"] == json.loads(ran(capsys, "judge", first, "--json")[1])["n_rows"] + 4000
    assert ran(capsys, *call)[0] == 0  # with representative states of its own
    status, _, err = ran(capsys, "judge", first, second)
    assert status == 1
    assert "differ in: representative states" in err


def test_the_page_has_the_verdict_and_loads_nothing(folder, capsys, tmp_path):
    page = tmp_path / "judge.html"
    ran(capsys, "judge", folder / "half.kbrl", folder / "log.parquet", "-o", page)
    text = page.read_text()
    assert "Better: the policy gains" in text
    assert "http" not in text
    assert "<script" not in text


def test_what_does_not_go_together_is_said(folder, capsys):
    assert "needs a MODEL and a LOG" in ran(capsys, "judge", folder / "half.kbrl")[2]
