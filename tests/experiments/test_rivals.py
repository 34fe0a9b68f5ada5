"""The search by one budget: the setting is chosen on search logs and judged on others."""

import pytest

from experiments.drawing import save_figure
from experiments.rivals import (
    BUDGET,
    FIRST_JUDGED,
    FORMS,
    METHODS,
    SETTINGS,
    TASKS,
    chosen,
    draw,
    jobs,
    measure,
    ratios,
)
from experiments.rivals_page import write


def rows_of(task, method, results):
    """Rows of settings with a result on two search logs and another on three judged ones."""
    rows = []
    for setting, (search, judged) in zip(SETTINGS[task, method], results):
        about = {"part": "search", "task": task, "method": method, "setting": setting, "scale": "laptop"}
        rows += [about | {"seed": seed, "is_judged": False, "result": search} for seed in (0, 1)]
        rows += [about | {"seed": FIRST_JUDGED + k, "is_judged": True, "result": judged} for k in range(3)]
    return rows


def test_all_methods_have_the_same_budget():
    assert set(SETTINGS) == {(task, method) for task in TASKS for method in METHODS[task]}
    for settings in SETTINGS.values():
        assert len({str(setting) for setting in settings}) == len(settings) == BUDGET


def test_search_logs_are_never_judged():
    for scale in ("laptop", "paper"):
        own = [job for job in jobs(scale) if job.settings["part"] == "search"]
        by_method = {}
        for job in own:
            by_method.setdefault((job.settings["task"], job.settings["method"]), []).append(job.seed)
        assert len({tuple(sorted(seeds)) for seeds in by_method.values()}) == 1
        assert {seed < FIRST_JUDGED for seed in by_method["HIV", "FQIT"]} == {True, False}


def test_the_setting_that_is_best_in_the_search_is_judged_by_its_other_logs(tmp_path):
    rows = rows_of("one pole", "LSPI", [(0.2, 0.9), (0.8, 0.5), (0.3, 1.0)])
    setting, judged = chosen(rows, "one pole", "LSPI")
    assert setting == SETTINGS["one pole", "LSPI"][1]
    assert [row["result"] for row in judged] == [0.5] * 3  # not the best on the judged logs
    assert chosen(rows, "HIV", "FQIT") is None
    write(rows, tmp_path)
    text = (tmp_path / "RIVALS.md").read_text()
    assert "| one pole | LSPI | n_reps 70, width 1.0 | 0.50 +- " in text
    assert "| 3 | 2, 3 of 6 settings |" in text
    assert "| EP3 | epilepsy, FQIT(20) | 100 | not run | not run | 0 |" in text
    save_figure(draw(rows), tmp_path, "rivals")


def test_ratios_are_taken_run_by_run():
    rows = [
        {"part": "times", "task": "HIV", "seed": seed, "form": form, "cpu_seconds": seconds * (1 + seed)}
        for seed in (0, 1)
        for form, seconds in (("KBSF", 2.0), ("FQIT, leaves found once", 20.0), ("FQIT, new trees", 100.0))
    ]
    assert ratios(rows) == {"HIV": dict(zip(FORMS, ([10.0, 10.0], [50.0, 50.0])))}


@pytest.mark.parametrize("task, method", [("one pole", "LSPI"), ("epilepsy", "KBSF"), ("HIV", "FQIT")])
def test_the_same_seed_gives_the_same_result(task, method):
    settings = {"part": "search", "task": task, "method": method, "setting": SETTINGS[task, method][0], "size": "smoke"}
    first, again = (next(measure(settings, 1))["result"] for _ in range(2))
    assert first == again


def test_all_forms_are_timed_on_one_log():
    rows = list(measure({"part": "times", "task": "three poles", "size": "smoke"}, 0))
    assert [row["form"] for row in rows] == ["KBSF", *(f"FQIT, {form}" for form in FORMS)]
    assert all(row["cpu_seconds"] > 0 for row in rows)
