"""The frame of the study: rows are stored job by job, and what is done is not run again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import experiments.__main__ as command
from experiments.claims import CLAIMS, write_claims
from experiments.drawing import curve, new_figure, paper_value, save_figure
from experiments.needs import RESTS_ON, Left, fits, rests_on
from experiments.overview import decisive, draw_overview
from experiments.rule import All, Exact, OneOf, Sampled, estimate
from experiments.runner import Task, carry_over, missing_tasks, run_tasks, work
from experiments.store import Store, job_key
from experiments.study import SCALES, Job, Verdict, best_over, distinct, interval, not_run, select, shown

ROOT = Path(command.__file__).parents[1]
JOBS = [Job({"m": m}, seed) for m in (10, 20) for seed in (0, 1)]


def rows_of(job, n=3):
    return [{"m": job.settings["m"], "seed": job.seed, "return": float(number)} for number in range(n)]


def test_a_store_that_is_opened_again_has_the_same_rows_and_knows_the_jobs(tmp_path):
    store = Store(tmp_path, "puddle", "smoke")
    for job in JOBS[:2]:
        store.add(job, rows_of(job))
    again = Store(tmp_path, "puddle", "smoke")
    assert again.rows == store.rows
    store.pack()
    assert not store.journal.exists()
    again = Store(tmp_path, "puddle", "smoke")
    assert again.rows == store.rows
    assert [again.has(job) for job in JOBS] == [True, True, False, False]


def test_packed_rows_have_the_same_bytes_in_whatever_order_and_parts_they_came(tmp_path):
    packed = []
    for number, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        store = Store(tmp_path / str(number), "puddle", "smoke")
        for place in order:
            store.add(JOBS[place], rows_of(JOBS[place]))
            if number and place == 1:
                store.pack()
                store = Store(tmp_path / str(number), "puddle", "smoke")
        store.pack()
        packed.append(store.path.read_bytes())
    assert packed[0] == packed[1]


@pytest.mark.parametrize("n_bytes", [1, 30, 100, 150])
def test_a_job_whose_rows_were_cut_short_counts_as_not_done(tmp_path, n_bytes):
    store = Store(tmp_path, "puddle", "smoke")
    for job in JOBS[:2]:
        store.add(job, rows_of(job))
    text = store.journal.read_bytes()
    store.journal.write_bytes(text[:-n_bytes])
    again = Store(tmp_path, "puddle", "smoke")
    assert [again.has(job) for job in JOBS[:2]] == [True, n_bytes == 1]
    again.add(JOBS[1], rows_of(JOBS[1])) if n_bytes > 1 else None
    assert Store(tmp_path, "puddle", "smoke").rows == store.rows


def test_intervals_are_those_of_students_t():
    rows = [{"x": value} for value in (1.0, 2.0, 3.0)]
    mean, half, n = interval(rows, "x")
    assert (mean, n) == (2.0, 3)
    assert half == pytest.approx(9.925 * 1.0 / np.sqrt(3), rel=1e-3)  # the table's t for 2 degrees of freedom
    assert shown(mean, half) == "2.00 +- 5.73"
    assert shown(1.0, np.inf) == "1.00 (one run)"
    assert interval([], "x")[2] == 0


def test_the_best_combination_is_the_one_with_the_best_mean():
    rows = [{"tau": tau, "return": value} for tau, value in ((1, 5.0), (1, 0.0), (2, 3.0), (2, 3.0))]
    assert best_over(rows, ("tau",), "return") == select(rows, tau=2)
    assert distinct(rows, "tau") == [1, 2]


def test_every_claim_has_a_line_whether_or_not_it_was_run(tmp_path):
    write_claims(tmp_path, {"PW1": ("smoke", Verdict("PW1", "3.7 | 3.8", Exact("x", False, 2), "Tried a, b, c."))})
    text = (tmp_path / "CLAIMS.md").read_text()
    lines = {line.split(" | ")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}
    assert set(CLAIMS) <= set(lines)
    assert "**does not hold**" in lines["PW1"]
    assert "3.7 \\| 3.8" in lines["PW1"]
    assert "not run at this scale" in lines["TH5"]
    assert "Judged: x (exact): does not hold. Tried a, b, c." in (tmp_path / "NOTES.md").read_text()
    with pytest.raises(ValueError, match="XX9"):
        write_claims(tmp_path, {"XX9": ("smoke", not_run("XX9", ""))})


def test_every_claim_names_a_figure_that_there_is():
    assert {claim.figure for claim in CLAIMS.values()} == set(command.FIGURES) - {
        "trust",
        "deferral",
        "power",
        "order_1",
        "rivals",
    }  # not the paper's


def test_the_same_rows_give_the_same_picture_files(tmp_path):
    rows = [{"m": m, "return": m + seed} for m in (1, 2, 3) for seed in (0, 1)]
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        figure, axes = new_figure(1, 1)
        curve(axes[0, 0], rows, "m", "return", "KBSF")
        paper_value(axes[0, 0], 2.0, "paper")
        save_figure(figure, folder, "one")
    for name in ("one.png", "one.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("figure", command.FIGURES)
def test_jobs_are_plain_and_all_different_at_every_scale(figure):
    for scale in ("smoke", "laptop", "paper"):
        jobs = command.figure_file(figure).jobs(scale)
        keys = [json.dumps([job.settings, job.seed]) for job in jobs]
        assert len(keys) == len(set(keys)) > 0


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    call = [sys.executable, "-m", "experiments", "theory", "--scale", "smoke", "--results", str(tmp_path), "--quiet"]
    path = Store(tmp_path, "theory", "smoke").journal
    study = subprocess.Popen(
        call, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while study.poll() is None and not (path.exists() and path.stat().st_size):
        pass
    os.killpg(study.pid, signal.SIGKILL) if study.poll() is None else None
    study.wait()
    before = Store(tmp_path, "theory", "smoke").rows
    subprocess.run(call, cwd=ROOT, check=True, capture_output=True)
    after = Store(tmp_path, "theory", "smoke").rows
    assert [row for row in after if row["job"] in {old["job"] for old in before}] == before
    assert not path.exists()  # packed
    assert {row["job"] for row in after} == {
        json.dumps([job.settings, job.seed], sort_keys=True) for job in command.figure_file("theory").jobs("smoke")
    }
    assert (tmp_path / "theory.png").exists()


def test_jobs_come_round_by_round_and_those_that_are_timed_come_last(tmp_path):
    stores = {figure: Store(tmp_path, figure, "paper") for figure in ("puddle", "incremental")}
    tasks = missing_tasks(stores, "paper")
    alone = [task.job.alone for task in tasks]
    assert alone == sorted(alone)
    first = [task.job.seed for task in tasks if not task.job.alone][:9]
    assert first == [0] * 9  # one of each kind: KBSF, seven readings, KBRL; then returns of incremental KBSF
    assert len(missing_tasks(stores, "paper", with_timed=False)) == alone.count(False)
    assert {task.job.settings["part"] for task in missing_tasks(stores, "paper", at_most=8.0)} == {"returns", "times"}


def test_every_claim_rests_on_jobs_of_its_figure_at_each_scale_that_judges(tmp_path):
    assert set(RESTS_ON) == set(CLAIMS)
    for scale in ("laptop", "paper"):
        for name, claim in CLAIMS.items():
            own = [job for job in command.figure_file(claim.figure).jobs(scale) if rests_on(name, job)]
            assert own, (name, scale)
    stores = {"poles": Store(tmp_path, "poles", "paper")}
    tasks = missing_tasks(stores, "paper", claims=("PO3",), n_runs=30)
    assert [(task.job.settings["all_m"], task.job.seed) for task in tasks] == [([200], seed) for seed in range(30)]
    assert missing_tasks(stores, "paper", claims=("PW1",)) == []  # of another figure


def test_what_a_claim_does_not_rest_on_changes_nothing_in_its_verdict():
    """Leave out the rows of all other jobs: the same findings and runs, claim by claim."""
    for figure in {claim.figure for claim in CLAIMS.values()}:
        rows = Store(ROOT / "results", figure, "laptop").rows
        if figure == "theory":
            continue  # all its claims rest on all its jobs
        jobs = {job_key(job): job for job in command.figure_file(figure).jobs("laptop")}
        for whole in command.figure_file(figure).verdicts(rows):
            needed = [row for row in rows if rests_on(whole.claim, jobs[row["job"]])]
            alone = {found.claim: found for found in command.figure_file(figure).verdicts(needed)}[whole.claim]
            assert (alone.finding, alone.n_runs, alone.ours) == (whole.finding, whole.n_runs, whole.ours), whole.claim


def test_jobs_on_one_thread_are_expected_to_take_their_cpu_seconds(tmp_path):
    store = Store(tmp_path, "incremental", "paper")
    job = command.figure_file("incremental").jobs("paper")[0]
    store.add(job, [{"job_seconds": 300.0, "job_cpu_seconds": 6.0}])  # on a busy machine
    left = missing_tasks({"incremental": store}, "paper", claims=("IN1",), n_runs=30)
    assert [task.seconds for task in left] == [6.0] * 29


def test_rows_of_the_same_job_at_the_laptops_scale_count_at_the_papers_unless_they_are_timed(tmp_path):
    laptop, paper = (Store(tmp_path, "hiv", scale) for scale in ("laptop", "paper"))
    jobs = command.figure_file("hiv").jobs("laptop")
    for job in jobs:
        laptop.add(job, [{**job.settings, "seed": job.seed, "scale": "laptop", "return": 1.0}])
    n_same = sum(job.settings["part"] != "times" for job in jobs)
    assert carry_over("hiv", laptop, paper) == n_same
    assert {(row["scale"], row["size"]) for row in paper.rows} == {("paper", "paper")}
    assert "times" not in distinct(paper.rows, "part")
    assert carry_over("hiv", laptop, paper) == 0
    puddle = Store(tmp_path, "puddle", "paper")
    assert carry_over("puddle", Store(ROOT / "results", "puddle", "laptop"), puddle) == 8
    assert distinct(puddle.rows, "part") == ["KBRL"]
    assert distinct(puddle.rows, "alone") == [False]  # where they were timed, but their times do not count here
    theory = Store(tmp_path, "theory", "paper")  # whose file does not say that any are the same
    assert carry_over("theory", Store(ROOT / "results", "theory", "laptop"), theory) == 0


@pytest.mark.parametrize("figure", ["hiv", "poles", "puddle", "triple_pole"])
def test_jobs_that_count_at_both_scales_differ_in_nothing_but_the_number_of_runs(figure):
    module = command.figure_file(figure)
    jobs = {scale: {job_key(job) for job in module.jobs(scale) if fits(job, module.SAME_AT_BOTH)} for scale in SCALES}
    assert {key.replace("laptop", "paper") for key in jobs["laptop"]} <= jobs["paper"]
    small, large = (module.SIZES[scale] for scale in ("laptop", "paper"))
    if figure == "hiv":
        assert [small[name] for name in ("rounds", "patients")] == [large[name] for name in ("rounds", "patients")]
    elif figure == "puddle":
        assert (small.all_n, small.widths) == (large.all_n, large.widths)
    elif figure == "poles":
        assert (small.n, small.all_m[1], small.tau_bars) == (large.n, large.all_m[1], large.tau_bars)
        assert (small.decisions, small.readings) == (large.decisions, large.readings)
    else:
        assert small.decisions == large.decisions


def test_notes_say_what_a_claim_with_few_runs_waits_for(tmp_path):
    few = Verdict("PW1", "0.1", Sampled("x", estimate([0.1, 0.2]), low=0.0), "")
    enough = Verdict("TH1", "0", Exact("y", True, 50), "")
    left = {"PW1": Left(7, 7200.0), "puddle": Left(9, 9000.0)}
    write_claims(tmp_path, {"PW1": ("paper", few), "TH1": ("paper", enough)}, left)
    text = " ".join((tmp_path / "NOTES.md").read_text().split())
    assert "| PW1 | undecided | 2, paper | 30 | 7 | 2.0 |" in text
    assert "has 2, not 30: 7 jobs of the paper's scale, about 2.0 hours, are still to be run." in text
    assert "that are left: puddle 9 jobs, 2.5 hours." in text
    assert "| TH1 |" not in text


def test_the_time_left_follows_the_pace_and_a_job_that_fails_stops_no_other(tmp_path, capsys):
    jobs = command.figure_file("theory").jobs("smoke")
    bad = Job({"size": "nothing"}, 0)
    stores, said = {"theory": Store(tmp_path, "theory", "smoke")}, []
    tasks = [Task("theory", bad, 5.0), *(Task("theory", job, 5.0) for job in jobs[:1])]
    failures = run_tasks(tasks, "smoke", stores, 1, said.append)
    assert len(failures) == 1
    assert "nothing" in failures[0]
    assert stores["theory"].has(jobs[0])
    assert said[0].startswith("1 of 2 done, about")
    assert said[1].startswith("2 of 2 done, about 0 min left")


def test_the_picture_of_all_claims_shows_the_part_that_decides(tmp_path):
    weak, strong = Sampled("a", estimate([1.0, 1.2]), low=0.0), Sampled("b", estimate([5.0, 5.1]), low=0.0)
    no = Exact("c", False, 3)
    assert decisive(All((strong, weak))) is weak
    assert decisive(OneOf((strong, weak))) is strong
    assert decisive(All((strong, no))) is no
    draw_overview({"PW1": ("laptop", Verdict("PW1", "", weak)), "TH5": ("laptop", Verdict("TH5", "", no))}, tmp_path)
    assert (tmp_path / "claims.png").stat().st_size > 10_000


def test_a_row_says_what_it_was_measured_by():
    job = command.figure_file("theory").jobs("smoke")[0]
    row = work("theory", "smoke", job, 1)[0]
    assert {"figure", "scale", "seed", "alone", "job_seconds", "job_peak_mb", "version"} <= set(row)
