"""What notebooks show: small tables in which all text is escaped, and progress only where a person sees it."""

import re

import pytest

from kbrl import KBSF, Transitions, check_log, judge, split_episodes
from kbrl.notebooks import LONGEST, html_table, is_notebook, progress, progress_html
from kbrl.tasks import PuddleWorld

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def log():
    return PuddleWorld().collect(3000, random_state=0)


def hostile_log():
    return Transitions([[0.0], [1.0]] * 10, [HOSTILE, "b"] * 10, [0.0] * 20, [[1.0], [0.0]] * 10, state_names=[HOSTILE])


def shown(log):
    """Return all that a notebook shows of a log, its check, a model and a judgement."""
    learn, rest = split_episodes(log, 0.5)
    model = KBSF(n_reps=10, random_state=0).fit(learn).model_
    table = {"obs": [0.0, None], "action": [HOSTILE, "b"], "reward": [0, 0], "done": [0, 1]}
    return [
        found._repr_html_() for found in (log, check_log(table), model, judge(model, rest), model.deferring(cases=3))
    ]


def test_tables_are_small_and_well_formed(log):
    for text in shown(log):
        assert len(text) < 4000
        assert text.startswith("<table>")
        assert text.endswith("</table>")
        for tag in ("tr", "td", "th", "b", "caption"):
            assert len(re.findall(rf"<{tag}\b", text)) == text.count(f"</{tag}>")


def test_no_text_of_a_file_becomes_markup():
    log = hostile_log()
    model = KBSF(n_reps=2, random_state=0).fit(log).model_
    for text in (log._repr_html_(), model._repr_html_(), html_table(HOSTILE, [(HOSTILE,)], head=(HOSTILE,))):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert "<script" not in progress_html(HOSTILE, 1, 2)


def test_long_text_is_cut():
    assert len(html_table("", [("a" * 10_000,)])) < LONGEST + 200


def test_a_model_is_printed_in_a_few_lines_without_its_arrays(log):
    model = KBSF(n_reps=10, random_state=0).fit(log).model_
    lines = repr(model).splitlines()
    assert len(lines) < 12
    assert "learnt from:            3,000 transitions" in lines
    assert "array" not in repr(model)


def test_a_judgement_shows_its_sentence_and_its_intervals(log):
    learn, rest = split_episodes(log, 0.5)
    found = judge(KBSF(n_reps=10, random_state=0).fit(learn).model_, rest)
    text = found._repr_html_()
    assert f"{found.gain.estimate:.4g}" in text
    assert found.sentence.split(":")[0] in text
    assert all(reason[:30] in text for reason in found.refusals)


def test_progress_is_silent_where_nobody_looks(capsys):
    with progress() as phase:
        phase("learning", 10)(5)
    assert not is_notebook()
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_bar_that_knows_how_far_it_is():
    assert progress_html("learning", 1500, 3000) == (
        '<progress value="1500" max="3000"></progress> learning: 1.5k of 3k rows'
    )
    assert progress_html("choosing", 0, 0) == "<progress></progress> choosing"


class Handle:
    """Stands for what IPython returns for something shown that can change."""

    def __init__(self):
        self.seen = []

    def update(self, html):
        self.seen.append(html.data)


def test_in_a_notebook_a_bar_is_shown_and_then_taken_away(monkeypatch):
    from types import SimpleNamespace

    display = pytest.importorskip("IPython.display")
    import IPython

    handle = Handle()
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(display, "display", lambda *shown, **options: handle)
    monkeypatch.setattr("kbrl.notebooks._SECONDS_BETWEEN", 0.0)
    assert is_notebook()
    with progress() as phase:
        step = phase("learning", 10)
        step(4)
        step(6)
    assert [re.findall(r'value="(\d+)"', text) for text in handle.seen] == [["0"], ["4"], ["10"], []]
    handle.seen.clear()
    with progress(quiet=True) as phase:
        phase("learning", 10)(10)
    assert handle.seen == []
