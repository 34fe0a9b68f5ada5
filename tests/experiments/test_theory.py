"""The theory's figure: a bound that is broken once does not hold, and the worked example comes out as by hand."""

import numpy as np
import pytest

from experiments.drawing import save_figure
from experiments.theory import DENSER, draw, measure, verdicts
from experiments.theory_models import crowd, largest_error, norm_ratios


def verdict(rows, claim):
    return next(found for found in verdicts(rows) if found.claim == claim)


def bounded(part, errors, bounds):
    lists = {"error": errors, "bound": bounds, "q_error": errors, "q_bound": bounds, "trivial": [10.0] * len(errors)}
    return [{"part": part, "seed": 0, "gamma": 0.9, "t": list(range(len(errors)))} | lists]


@pytest.mark.parametrize("claim, part", [("TH1", "random"), ("TH1", "puddle"), ("TH2", "puddle"), ("TH4", "on-line")])
def test_one_error_above_its_bound_is_enough(claim, part):
    good, bad = bounded(part, [1.0, 0.0], [2.0, 0.0]), bounded(part, [1.0, 3.0], [2.0, 2.0])
    assert verdict(good, claim).finding.value == "holds"
    assert verdict(good, claim).ours == "0 of 2 above; largest error / bound 0.500"
    assert verdict(bad, claim).finding.value == "does not hold"
    assert verdict(bad, claim).ours == "1 of 2 above; largest error / bound 1.500"
    assert verdict([], claim).finding.value == "not run at this scale"


def sequence(bounds):
    rows = [{"sequence": "beside", "distance": d, "bound": [b, 1e9]} for d, b in zip(DENSER, bounds)]
    rows += [{"sequence": "grid", "distance": 0.1, "bound": [1.0, 2.0]}]
    return [row | {"part": "denser", "seed": 0, "m": 4, "tau_bar": [0.1, 0.01], "trivial": [1.0, 1.0]} for row in rows]


def test_the_bound_goes_to_nothing_if_it_falls_at_every_step_and_far_enough():
    falling = [10.0**-k for k in range(len(DENSER))]
    assert verdict(sequence(falling), "TH3").finding.value == "holds"
    assert verdict(sequence([1.0, 2.0, *falling[2:]]), "TH3").finding.value == "does not hold"
    assert verdict(sequence([1.0 - 0.01 * k for k in range(len(DENSER))]), "TH3").finding.value == "does not hold"


def test_the_worked_example_breaks_proposition_5_by_as_much_as_by_hand():
    """v* is (2, 2, 3/4 for each of the crowd, 3/2); the crowd is off by 1/4 each, everything else by nothing.

    u = E u has (x, x, 3/4, x).  In the 2-norm x = 11/6 is closest, so that |v* - u| is (1/6, 1/6, 0, 1/3); in the
    max norm x = 7/4, and it is (1/4, 1/4, 0, 1/4).  The bound is twice its norm: 4/3, 2 sqrt(1/6) and 1/2.
    """
    ratios = norm_ratios(*crowd(20))
    assert ratios["1"] == pytest.approx(5 / (4 / 3))
    assert ratios["2"] == pytest.approx(np.sqrt(20) / 4 / (2 * np.sqrt(1 / 6)))
    assert ratios["max"] == pytest.approx(0.25 / 0.5)


def norms(one, two, largest):
    random = [{"models": "random", "norm": norm, "ratios": [0.5]} for norm in ("1", "2", "max")]
    made = [{"models": "crowd", "norm": n, "ratios": [r]} for n, r in (("1", one), ("2", two), ("max", largest))]
    return [row | {"part": "norms", "seed": 0, "n_crowd": 1} for row in random + made]


def test_proposition_5_holds_only_if_it_does_in_all_three_norms():
    assert verdict(norms(0.9, 0.9, 0.9), "TH5").finding.value == "holds"
    assert verdict(norms(3.0, 0.9, 0.5), "TH5").finding.value == "does not hold"
    assert verdict(norms(0.9, 1.1, 0.5), "TH5").finding.value == "does not hold"


def test_an_error_within_rounding_is_none():
    assert largest_error(np.array([1.0, 100.0]), np.array([1.0, 100.0 + 1e-8])) == 0.0
    assert largest_error(np.array([1.0, 100.0]), np.array([2.0, 100.0])) == pytest.approx(1.0, abs=1e-6)


def test_the_same_seed_gives_the_same_figures_and_they_can_be_drawn(tmp_path):
    first, again = (list(measure({"size": "smoke"}, 0)) for _ in range(2))
    assert first == again
    rows = [row | {"seed": 0} for row in first]
    found = [verdict(rows, claim).finding.value for claim in ("TH1", "TH2", "TH3", "TH4", "TH5")]
    assert found == ["holds"] * 4 + ["does not hold"]
    save_figure(draw(rows), tmp_path, "picture")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
