"""update and merge stop where data would count twice; --again counts them again."""

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from kbrl import load_model
from kbrl.choosing import automatic_fit
from kbrl.cli import main
from kbrl.files import kept_for_us
from kbrl.logs.writing import write_log as write_kbrl_log
from sketched_logs import hospital

FORMAT_1 = Path(__file__).parent.parent / "format_1"
COLUMNS = ["--state", "x,y", "--action", "dose", "--reward", "score", "--episode", "patient"]
SIZES = ["--reps", "10", "--sample-width", "0.3", "--rep-width", "0.3", "-q"]


def write_log(name, patients, *, seed, visits=10):
    rng = np.random.default_rng(seed)
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "x", "y", "dose", "score"])
        for patient in patients:
            for _ in range(visits):
                x, y, score = rng.random(3)
                writer.writerow([f"p{patient}", x, y, rng.choice(["no", "low"]), score])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_log("april.csv", range(40), seed=0)
    write_log("may.csv", range(40, 60), seed=1)
    may = Path("may.csv").read_text().split("\n", 1)[1]
    Path("both.csv").write_text(Path("april.csv").read_text() + may)
    main(["fit", "april.csv", *COLUMNS, *SIZES, "-o", "m.kbrl"])
    return tmp_path


def refused(arguments, capsys):
    before = {path: path.read_bytes() for path in Path().iterdir()}
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 1
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
    return capsys.readouterr().err


def n_learnt(path):
    return load_model(path).n_samples


def test_the_same_log_is_not_learnt_twice_unless_asked_for(folder, capsys):
    said = refused(["update", "m.kbrl", "april.csv", "-q"], capsys)
    assert said.endswith(
        "Error: april.csv was not learnt from: of its transitions, all 360 are learnt already, and nothing else is. "
        "They would count twice. Nothing was written. Give only new rows, or count these again: --again.\n"
    )
    main(["update", "m.kbrl", "april.csv", "--again", "-q"])
    assert n_learnt("m.kbrl") == 720
    assert "all 360 are learnt already (50 % of all that is)" in refused(
        ["update", "m.kbrl", "april.csv", "-q"], capsys
    )


def test_a_log_that_contains_old_rows_is_not_learnt(folder, capsys):
    said = refused(["update", "m.kbrl", "both.csv", "-q", "-o", "n.kbrl"], capsys)
    assert "of its transitions, 360 of the 540 are learnt already (100 % of all that is)" in said
    main(["update", "m.kbrl", "may.csv", "-q", "-o", "n.kbrl"])
    assert n_learnt("n.kbrl") == 540
    assert "all 180 are learnt already (33 % of all that is)" in refused(["update", "n.kbrl", "may.csv", "-q"], capsys)


def test_a_few_rows_are_not_learnt_again_however_long_ago_they_were_learnt(folder, capsys):
    rows = Path("may.csv").read_text().split("\n")
    Path("visit.csv").write_text("\n".join(rows[:6]) + "\n")  # five visits, four transitions
    main(["update", "m.kbrl", "visit.csv", "-q"])
    write_log("june.csv", range(100, 400), seed=3)
    main(["update", "m.kbrl", "june.csv", "-q"])
    said = refused(["update", "m.kbrl", "visit.csv", "-q"], capsys)
    assert "of its transitions, all 4 are learnt already (0 % of all that is). They would count twice." in said
    assert said.endswith(
        "count these again: --again. If these are different episodes with the same identifiers, use --again as well.\n"
    )


def test_a_hospital_that_numbers_its_patients_alike_is_learnt_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("here", 1), ("there", 2)):
        write_kbrl_log(hospital(1000, 1, seed), f"{name}.csv", names=["stage"])
    main(["fit", "here.csv", *SIZES[2:], "--reps", "4", "-o", "m.kbrl"])
    main(["update", "m.kbrl", "there.csv", "-q"])
    assert n_learnt("m.kbrl") == 2000


def test_chunks_of_the_log_do_not_matter(folder, capsys):
    assert "all 360 are learnt already" in refused(["update", "m.kbrl", "april.csv", "-q", "--chunk-rows", "7"], capsys)


def test_a_model_is_not_merged_with_one_that_contains_it(folder, capsys):
    main(["update", "m.kbrl", "may.csv", "--alone", "-q", "-o", "may.kbrl"])
    main(["merge", "m.kbrl", "may.kbrl", "-o", "all.kbrl"])
    assert n_learnt("all.kbrl") == 540
    said = refused(["merge", "all.kbrl", "m.kbrl", "-o", "more.kbrl"], capsys)
    assert said.startswith(
        "Error: m.kbrl cannot be added to all.kbrl: they share data: of its transitions, all 360 are"
    )
    assert "count these again: --again" in said
    assert "they share data" in refused(["merge", "may.kbrl", "m.kbrl", "all.kbrl", "-o", "more.kbrl"], capsys)
    main(["merge", "all.kbrl", "m.kbrl", "--again", "-o", "more.kbrl"])
    assert n_learnt("more.kbrl") == 900


def test_the_same_log_alone_is_learnt_but_not_merged(folder, capsys):
    main(["update", "m.kbrl", "april.csv", "--alone", "-q", "-o", "again.kbrl"])
    assert "is a copy of m.kbrl" in refused(["merge", "m.kbrl", "again.kbrl", "-o", "all.kbrl"], capsys)
    main(["update", "again.kbrl", "may.csv", "-q"])
    assert "they share data" in refused(["merge", "m.kbrl", "again.kbrl", "-o", "all.kbrl"], capsys)


def test_a_file_of_format_1_cannot_tell_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FORMAT_1 / "sums.kbrl", "old.kbrl")
    rows = ["dee,1,61,158,none,-3.8,no", "dee,2,61,163,low dose,-4.3,yes"]
    Path("more.csv").write_text("\n".join(["patient,visit,age,pressure,drug,score,discharged", *rows]) + "\n")
    main(["update", "old.kbrl", "more.csv", "-q", "-o", "new.kbrl"])
    assert "old.kbrl has file format 1, which does not record which rows were learnt" in capsys.readouterr().err
    main(["update", "old.kbrl", "more.csv", "-q", "--again", "-o", "new.kbrl"])
    assert capsys.readouterr().err == ""


def test_columns_that_are_named_count_by_position_whatever_their_names(folder):
    renamed = Path("may.csv").read_text().replace("patient,x,y,", "patient,a,b,")
    Path("renamed.csv").write_text(renamed)
    main(["update", "m.kbrl", "renamed.csv", "--state", "a,b", "-q", "-o", "n.kbrl"])
    main(["update", "m.kbrl", "may.csv", "-q", "-o", "o.kbrl"])
    assert load_model("n.kbrl").solution.q.tolist() == load_model("o.kbrl").solution.q.tolist()
    assert load_model("n.kbrl").source.state_names == ("x", "y")


def test_two_updates_at_a_time_of_one_model_lose_nothing_silently(folder, capsys):
    """The second one would replace what the first one has learnt."""
    with kept_for_us("m.kbrl"):
        said = refused(["update", "m.kbrl", "may.csv", "-q"], capsys)
        assert "m.kbrl is being changed by another process. Nothing was written. Repeat the command" in said
        main(["update", "m.kbrl", "may.csv", "--alone", "-q", "-o", "may.kbrl"])  # many may read it
    main(["update", "m.kbrl", "may.csv", "-q"])
    assert n_learnt("m.kbrl") == 540


def test_a_model_that_was_replaced_while_an_update_learnt_stays(folder, capsys, monkeypatch):
    main(["update", "m.kbrl", "may.csv", "-q", "-o", "other.kbrl"])
    learn = automatic_fit.learn_more

    def learn_while_another_is_put_in_its_place(*given, **more):
        os.replace("other.kbrl", "m.kbrl")
        return learn(*given, **more)

    monkeypatch.setattr(automatic_fit, "learn_more", learn_while_another_is_put_in_its_place)
    write_log("june.csv", range(100, 110), seed=3)
    with pytest.raises(SystemExit):
        main(["update", "m.kbrl", "june.csv", "-q"])
    assert "m.kbrl was replaced by another process meanwhile. Nothing was written." in capsys.readouterr().err
    assert n_learnt("m.kbrl") == 540
