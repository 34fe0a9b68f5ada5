"""The page about order 1: its runs stand beside the best that is known."""

import pytest

from experiments.drawing import save_figure
from experiments.order_1 import TASKS, draw, groups, jobs, measure
from experiments.order_1_page import CEILINGS, write

ROWS = [
    {"task": "one pole", "start": start, "plan": "5x3", "seed": seed, "scale": "laptop", "rate": rate, "result": rate}
    for start, rate in (("origin", 0.1), ("fast", 0.8))
    for seed in range(4)
] + [{"task": "HIV", "plan": "2x2", "seed": 0, "scale": "laptop", "result": 1.2e9}]


def test_every_task_is_run_at_every_scale_with_correct_physics():
    for scale in ("smoke", "laptop", "paper"):
        assert {job.settings["task"] for job in jobs(scale)} == set(TASKS)
    paper = [job for job in jobs("paper") if job.settings["task"] == "one pole"]
    assert len(paper) == 30 * 4  # two starts, two plans
    assert not any(job.alone for job in paper)


def test_the_page_gives_each_setting_a_line_and_its_share_of_the_best(tmp_path):
    write(groups(ROWS), tmp_path)
    text = (tmp_path / "BEYOND.md").read_text()
    assert "| one pole: fast, 5x3 | 0.90 to 0.93: proved | not run | LSPI not run | 0.80 [" in text
    assert f"| {100 * 0.8 / CEILINGS['one pole']:.0f} % |" in text
    assert "| HIV: 2x2 | 17.7 e9: healthy from the first day |" in text
    assert "1.20 (one run) e9 | 1, laptop | 7 % |" in text
    save_figure(draw(ROWS), tmp_path, "order_1")


@pytest.mark.parametrize("task", ["puddle", "one pole", "epilepsy"])
def test_the_same_seed_gives_the_same_result(task):
    settings = next(job.settings for job in jobs("smoke") if job.settings["task"] == task)
    first, again = (next(measure(settings, 3))["result"] for _ in range(2))
    assert first == again
