"""The one rule: an interval decides, and nothing else does."""

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp, ttest_ind

import experiments.__main__ as command
from experiments.claims import CLAIMS, counted, write_claims
from experiments.rule import LEVEL, RULE, All, Estimate, Exact, Finding, OneOf, Sampled, estimate, gap, leaves
from experiments.store import Store
from experiments.study import BOUNDS as RATE
from experiments.study import SCALES, Verdict, by_seed, measured, with_interval

HOLDS, FAILS, UNDECIDED = Finding.HOLDS, Finding.FAILS, Finding.UNDECIDED
ROWS = Path(command.__file__).parents[1] / "results" / "rows"
# Claims about what is counted, not sampled; all others have intervals.
EXACT = {"IN1", "TH1", "TH2", "TH3", "TH4", "TH5"}


def at(low, high):
    """An estimate whose interval has these ends."""
    return Estimate((low + high) / 2, low, high, 5)


@pytest.mark.parametrize(
    "interval, finding",
    [
        ((0.9, 1.0), HOLDS),
        ((0.5, 0.7), FAILS),
        ((0.7, 0.9), UNDECIDED),
        ((0.8, 0.9), UNDECIDED),
        ((0.7, 0.8), UNDECIDED),
    ],
)
def test_a_figure_is_above_a_limit_only_if_its_whole_interval_is(interval, finding):
    assert Sampled("x", at(*interval), low=0.8).finding is finding
    mirrored = at(-interval[1], -interval[0])
    assert Sampled("x", mirrored, high=-0.8).finding is finding


@pytest.mark.parametrize(
    "interval, finding",
    [
        ((-0.1, 0.1), HOLDS),  # inside the margin
        ((0.3, 0.5), FAILS),  # outside, on either side
        ((-0.5, -0.3), FAILS),
        ((0.1, 0.3), UNDECIDED),  # across one end
        ((-0.3, 0.3), UNDECIDED),  # across both
    ],
)
def test_equivalence_asks_for_an_interval_inside_the_margin(interval, finding):
    assert Sampled("x", at(*interval), -0.2, 0.2).finding is finding


def test_equivalence_is_two_one_sided_tests_at_half_a_per_cent_each():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        values = rng.normal(0.0, 1.0, 8)
        above = ttest_1samp(values, -1.0, alternative="greater").pvalue < 0.005
        below = ttest_1samp(values, 1.0, alternative="less").pvalue < 0.005
        found.append(above and below)
        assert (Sampled("x", estimate(values), -1.0, 1.0).finding is HOLDS) == found[-1]
    assert 0 < sum(found) < 300


@given(
    st.lists(st.floats(-1e6, 1e6), max_size=6),
    st.floats(-1e6, 1e6),
    st.floats(0, 1e6),
    st.sampled_from(["<", ">", "="]),
)
def test_nothing_is_decided_where_an_interval_contains_the_limit(values, limit, width, kind):
    found = estimate(values)
    low, high = {"<": (-np.inf, limit), ">": (limit, np.inf), "=": (limit - width, limit + width)}[kind]
    finding = Sampled("x", found, low, high).finding
    ends = [end for end in (low, high) if np.isfinite(end)]
    if len(values) < 2 or any(found.low <= end <= found.high for end in ends):
        assert finding is UNDECIDED
    else:
        assert finding is (HOLDS if low < found.mean < high else FAILS)


def test_one_run_decides_nothing_and_says_so():
    part = Sampled("the rate", estimate([1.0]), low=0.5)
    assert part.finding is UNDECIDED
    assert str(part) == "the rate is 1 (one run, no interval), must be above 0.5: undecided"
    assert Sampled("the rate", estimate([]), low=0.5).finding is UNDECIDED


def test_what_is_counted_needs_no_interval():
    assert [Exact("no error", is_true, 1).finding for is_true in (True, False)] == [HOLDS, FAILS]
    assert str(Exact("no error", True, 1)) == "no error (exact): holds"


YES, NO, OPEN = Exact("yes", True, 3), Exact("no", False, 3), Sampled("open", estimate([1.0]), low=0.0)


@pytest.mark.parametrize(
    "parts, of_all, of_one",
    [
        ((YES, YES), HOLDS, HOLDS),
        ((YES, NO), FAILS, HOLDS),
        ((NO, NO), FAILS, FAILS),
        ((YES, OPEN), UNDECIDED, HOLDS),
        ((NO, OPEN), FAILS, UNDECIDED),
        ((OPEN, OPEN), UNDECIDED, UNDECIDED),
    ],
)
def test_parts_are_joined_as_in_the_logic_of_three_values(parts, of_all, of_one):
    for order in (parts, parts[::-1]):
        assert All(order).finding is of_all
        assert OneOf(order).finding is of_one
    assert All(parts).n_runs == min(part.n_runs for part in parts)


def test_a_claim_without_parts_cannot_be_judged():
    with pytest.raises(ValueError, match="at least one part"):
        _ = All(()).finding


def test_runs_with_the_same_seeds_are_compared_in_pairs():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and the table's t for 2 degrees is 9.925."""
    found = gap({0: 11.0, 1: 102.0, 2: 1003.0}, {0: 10.0, 1: 100.0, 2: 1000.0})
    assert (found.mean, found.n_runs) == (2.0, 3)
    assert found.half == pytest.approx(9.925 / np.sqrt(3), rel=1e-3)


def test_runs_with_other_seeds_all_count_and_scipy_finds_the_same_interval():
    rng = np.random.default_rng(1)
    first, second = rng.normal(1, 2, 12), rng.normal(0, 1, 8)
    found = gap(dict(enumerate(first)), dict(enumerate(second)), factor=1.5)
    judge = ttest_ind(first, 1.5 * second, equal_var=False).confidence_interval(LEVEL)
    assert (found.low, found.high) == pytest.approx((judge.low, judge.high))
    assert found.n_runs == 8


@pytest.mark.parametrize("first, second", [({0: 1.0}, {0: 2.0}), ({0: 1.0, 1: 1.0}, {0: 2.0}), ({0: 1.0, 1: 1.0}, {})])
def test_one_run_of_a_pair_gives_no_interval(first, second):
    assert gap(first, second).half == np.inf
    assert Sampled("x", gap(first, second), high=0.0).finding is UNDECIDED


def test_runs_without_any_spread_have_an_interval_without_width():
    found = gap({0: 1.0, 1: 1.0, 2: 1.0}, {0: 3.0, 1: 3.0})
    assert (found.mean, found.half) == (-2.0, 0.0)


@pytest.mark.parametrize("n_runs", [2, 4, 20, 50])
@pytest.mark.parametrize("n_successes", [0, 1, -1])
def test_runs_that_fail_or_succeed_have_the_interval_of_clopper_and_pearson(n_runs, n_successes):
    k = n_successes % (n_runs + 1)
    found = measured([{"rate": 1.0}] * k + [{"rate": 0.0}] * (n_runs - k), "rate")
    judge = binomtest(k, n_runs).proportion_ci(LEVEL, method="exact")
    assert (found.mean, found.n_runs) == (k / n_runs, n_runs)
    assert (found.low, found.high) == pytest.approx((judge.low, judge.high), abs=0.01)
    assert measured([{"seconds": 1.0}] * n_runs, "seconds").half < 1e-15


def test_four_successes_do_not_refute_a_rate_of_60_per_cent_and_thirty_do():
    for n_runs, finding in ((4, UNDECIDED), (30, FAILS)):
        assert Sampled("rate", estimate([1.0] * n_runs, RATE), high=0.6).finding is finding
    assert 0.6**4 > 0.005 > 0.6**30  # so often runs that succeed or not would all succeed at that rate


@pytest.mark.parametrize("n_runs, rate, alike", [(4, 0.9, 0.5), (10, 0.97, 0.95), (30, 0.97, 0.5), (30, 0.6, 0.95)])
def test_a_success_rate_is_rarely_outside_its_interval_where_students_often_misses_it(n_runs, rate, alike):
    """Runs of 81 test states whose results are more or less alike within a run: beta-binomial."""
    rng, n_studies = np.random.default_rng(0), 400
    first, second = rate * (1 - alike) / alike, (1 - rate) * (1 - alike) / alike
    runs = rng.binomial(81, rng.beta(first, second, (n_studies, n_runs))) / 81
    missed = {bounds: np.mean([not _contains(estimate(run, bounds), rate) for run in runs]) for bounds in (RATE, None)}
    assert missed[RATE] <= 0.01
    if rate > 0.8:
        assert missed[None] > 0.1


def _contains(found, value):
    return found.low <= value <= found.high


def test_more_spread_means_a_wider_interval_and_more_runs_a_narrower_one():
    def width(values):
        found = estimate(values, RATE)
        return found.high - found.low

    assert width([0.5, 0.5] * 10) < width([0.2, 0.8] * 10) < width([0.0, 1.0] * 10)
    assert width([0.2, 0.8] * 20) < width([0.2, 0.8] * 10)


@pytest.mark.parametrize("values", [[0.2, 0.9, 0.4], [0.0, 0.0], [1.0] * 7])
def test_the_interval_of_failures_mirrors_that_of_successes(values):
    found, mirrored = estimate(values, RATE), estimate([1.0 - value for value in values], RATE)
    assert (found.low, found.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low), abs=0.01)
    assert 0.0 <= found.low <= found.mean <= found.high <= 1.0


def test_the_gap_of_success_rates_has_a_width_in_pairs_and_without():
    same, other = {0: 1.0, 1: 1.0, 2: 1.0}, {0: 0.0, 1: 0.0}
    paired = gap(same, dict.fromkeys(same, 0.0), bounds=RATE)
    assert (paired.mean, paired.high) == (1.0, pytest.approx(1.0))
    assert -1.0 < paired.low < 0.0  # three pairs do not prove a gain
    assert Sampled("x", gap(same, other, bounds=RATE), low=0.0).finding is UNDECIDED
    many = gap(dict.fromkeys(range(20), 1.0), dict.fromkeys(range(30), 0.0), bounds=RATE)
    assert Sampled("x", many, low=0.5).finding is HOLDS
    assert gap(same, {0: 0.0}, bounds=RATE).half == np.inf


def test_an_interval_that_is_not_even_is_written_with_its_ends():
    assert str(Estimate(0.5, 0.25, 0.75, 4)) == "0.5 +- 0.25 (4 runs)"
    assert str(Estimate(0.9, 0.25, 1.0, 4)) == "0.9 [0.25, 1] (4 runs)"
    assert with_interval(Estimate(0.9, 0.25, 1.0, 4)) == "0.90 [0.25, 1.00]"
    assert with_interval(estimate([0.3], RATE)) == "0.30 (one run)"


def test_two_rows_of_one_seed_are_not_two_runs():
    with pytest.raises(ValueError, match="one row per seed, but seed 3 has several"):
        by_seed([{"seed": 3, "x": 1.0}, {"seed": 3, "x": 2.0}], "x")


def test_a_ratio_of_means_is_above_a_number_exactly_if_the_gap_is_above_nothing():
    kbsf, sarsa = {0: 100.0, 1: 104.0, 2: 96.0}, {0: 40.0, 1: 41.0, 2: 39.0}
    assert gap(kbsf, sarsa, 2.0).mean == pytest.approx(100 - 2 * 40)
    assert gap(kbsf, sarsa, 2.5).mean == pytest.approx(0.0)


# The stored rows, and the table -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verdicts():
    return {claim: verdict for claim, (_, verdict) in stored().items()}


@lru_cache(maxsize=1)
def stored():
    found = {}
    for figure in command.FIGURES:
        by_scale = {scale: rows for scale in SCALES if (rows := Store(ROWS.parent, figure, scale).rows)}
        found |= command.judged(figure, by_scale)
    return found


def test_every_claim_is_judged_by_the_rule_and_by_nothing_else(verdicts):
    assert set(verdicts) == set(CLAIMS)
    for claim, verdict in verdicts.items():
        own = leaves(verdict.judged)
        assert {type(leaf) for leaf in own} == ({Exact} if claim in EXACT else {Sampled}), claim
        assert verdict.finding is verdict.judged.finding
    with pytest.raises(AttributeError):
        verdicts["PO1"].finding = HOLDS


def test_no_claim_of_the_stored_study_holds_against_its_own_intervals(verdicts):
    """The same logic once more, from the ends of the intervals alone."""
    for claim, verdict in verdicts.items():
        straddling = [
            leaf
            for leaf in leaves(verdict.judged)
            if isinstance(leaf, Sampled)
            and (
                leaf.n_runs < 2
                or leaf.found.low <= leaf.low <= leaf.found.high
                or leaf.found.low <= leaf.high <= leaf.found.high
            )
        ]
        assert all(leaf.finding is UNDECIDED for leaf in straddling), claim
        if straddling and not _has_one_of(verdict.judged):
            assert verdict.finding is not HOLDS, claim


def _has_one_of(part):
    return isinstance(part, OneOf) or (isinstance(part, All) and any(map(_has_one_of, part.parts)))


def test_the_table_on_file_is_the_one_that_its_rows_give(verdicts, tmp_path):
    write_claims(tmp_path, stored(), command.left(ROWS.parent))
    for name in ("CLAIMS.md", "NOTES.md"):
        assert (tmp_path / name).read_text() == (ROWS.parent / name).read_text()


def test_the_page_about_the_study_tells_the_same_verdicts(verdicts):
    text = (ROWS.parents[1] / "docs" / "study.md").read_text()
    ids = {finding: [] for finding in Finding}
    table = text.split("| figure | holds | does not hold | undecided |")[1].split("\n\n")[0]
    for line in table.strip().splitlines()[1:]:
        for finding, cell in zip((HOLDS, FAILS, UNDECIDED), line.split("|")[2:5]):
            for first, last in re.findall(r"([A-Z]{2}\d)(?: to [A-Z]{2}(\d))?", cell):
                ids[finding] += [f"{first[:2]}{k}" for k in range(int(first[2]), int(last or first[2]) + 1)]
    assert {claim: finding for finding, own in ids.items() for claim in own} == {
        claim: verdict.finding for claim, verdict in verdicts.items()
    }
    n_hold, n_fail, n_open = (len(ids[finding]) for finding in (HOLDS, FAILS, UNDECIDED))
    assert f"Of {len(CLAIMS)} claims {n_hold} hold, {n_fail} do not, and {n_open} are undecided." in text


def test_the_table_states_the_rule_and_counts_the_verdicts(tmp_path):
    found = {
        "PW1": ("laptop", Verdict("PW1", "a", Sampled("the gap", estimate([0.0, 0.1, 0.2]), -9.0, 9.0))),
        "PW2": ("laptop", Verdict("PW2", "b", Sampled("the gain", estimate([1.0]), low=0.0))),
        "TH5": ("laptop", Verdict("TH5", "c", NO)),
    }
    write_claims(tmp_path, found)
    text, notes = ((tmp_path / name).read_text() for name in ("CLAIMS.md", "NOTES.md"))
    for page in (text, notes):
        assert RULE in page.replace("\n", " ")
    for claim in CLAIMS.values():
        assert claim.holds_if in text
    assert f"{len(CLAIMS)} claims. Holds: 1, does not hold: 1, undecided: 1, not run at this scale: 32." in text
    assert counted(found).capitalize() in text
    assert "| **undecided** |" in text
    assert "Judged: the gain is 1 (one run, no interval), must be above 0: undecided." in notes
    assert "The figure with fewest runs has 1, not 30" in notes.replace("\n", " ")


def test_a_larger_scale_takes_over_claim_by_claim_as_soon_as_it_has_as_many_runs(monkeypatch):
    class File:
        @staticmethod
        def verdicts(rows):
            return [Verdict("PO1", str(n), Sampled("x", estimate([0.5] * n), low=0.0)) for n in rows]

    monkeypatch.setattr(command, "figure_file", lambda figure: File)
    for laptop, paper, scale in ((5, 4, "laptop"), (5, 5, "paper"), (5, 50, "paper")):
        found = command.judged("poles", {"smoke": [9], "laptop": [laptop], "paper": [paper]})
        assert found["PO1"][0] == scale
    assert command.judged("poles", {"smoke": [9]})["PO1"][1].finding is Finding.NOT_RUN


def test_a_scale_is_drawn_when_it_judges_all_claims_and_most_by_more_runs(monkeypatch):
    class File:
        @staticmethod
        def verdicts(rows):
            return [
                Verdict(claim, str(n), Sampled("x", estimate([0.5] * n), low=0.0) if n else None)
                for claim, n in zip(("PO1", "PO2", "PO3"), rows)
            ]

    monkeypatch.setattr(command, "figure_file", lambda figure: File)
    laptop = [5, 5, 5]
    for paper, scale in (([50, 50, 0], "laptop"), ([50, 2, 2], "laptop"), ([50, 50, 2], "paper"), ([50] * 3, "paper")):
        assert command.drawn_scale("poles", {"laptop": laptop, "paper": paper}) == scale
