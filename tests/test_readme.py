"""What the README and the page about Python say is true: their examples run, and their commands exist."""

import re
from pathlib import Path

import numpy as np

from kbrl import KBRL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = README + (ROOT / "docs" / "howto" / "python.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGES, flags=re.DOTALL)
OWN = (
    "evaluate(model.predict",
    "array(['treat', 'wait'], ...)",
    "OnlineAgent(",
    "found = kbrl.judge(model, rest)",
    "small.bound(log)",
)  # of the examples, each of which has a test


def test_code_comes_before_line_20():
    first = next(number for number, line in enumerate(README.splitlines(), start=1) if line.startswith("```"))
    assert first < 20


def test_every_example_has_a_test_of_its_own():
    assert [sum(words in block for words in OWN) for block in BLOCKS] == [1] * len(OWN)


def run(number):
    """Run an example, which stands alone, and return its variables."""
    variables = {}
    exec(compile(BLOCKS[number], f"README example {number + 1}", "exec"), variables)
    return variables


def example_with(words):
    """Return the variables of the one example that has these words."""
    (number,) = (place for place, block in enumerate(BLOCKS) if words in block)
    return run(number)


def test_the_first_example_scores_as_it_says(capsys):
    example_with(OWN[0])
    assert 3.7 < float(capsys.readouterr().out) < 3.9


def test_the_policy_from_arrays_is_the_one_it_shows():
    model = example_with(OWN[1])["model"]
    assert model.predict([[1.0, 1.0], [-1.0, -1.0]]).tolist() == ["treat", "wait"]
    assert model.n_samples_ == 500


def test_learning_while_acting_gets_as_far_as_it_says(capsys):
    example_with(OWN[2])
    assert float(capsys.readouterr().out) > 3


def test_the_judged_policy_is_better_and_truly_so(capsys):
    found = example_with(OWN[3])
    assert capsys.readouterr().out.startswith("better")
    assert found["found"].gain.low > 0
    from kbrl.tasks import PuddleWorld

    true = PuddleWorld().evaluate(found["model"].predict, random_state=1).mean
    assert true > found["log"].rewards.sum() / len(np.unique(found["log"].episodes))


def test_what_it_says_of_bounds_is_true():
    found = example_with(OWN[4])
    whole, small, log = found["whole"], found["small"], found["log"]
    bound = whole.bound(log)
    assert bound.value < 2e-6
    assert "at any state" in repr(bound)
    assert "vacuous" in repr(small.bound(log))
    states = np.random.default_rng(0).random((500, 2))
    big = KBRL(sample_width=0.1).fit(log)
    assert np.abs(whole.q_values(states) - big.q_values(states)).max() <= bound.value + 1e-6  # KBRL's own tolerance
    assert (whole.predict(states) == big.predict(states)).all()


def test_the_verdicts_are_counted_right():
    claims = (ROOT / "results" / "CLAIMS.md").read_text()
    counted = re.search(r"(\d+) claims. Holds: (\d+), does not hold: (\d+), undecided: (\d+)", claims)
    stated = re.search(r"of its (\d+) claims (\d+) hold, (\d+) do not and (\d+) are undecided", README)
    assert stated.groups() == counted.groups()


def test_the_make_targets_that_it_names_exist():
    targets = set(re.findall(r"(?:`|^)make ([\w-]+)", README, flags=re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
