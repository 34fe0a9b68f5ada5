"""The epilepsy figure: its rows lead to the verdicts that CLAIMS.md's rules say."""

import pytest

from experiments.drawing import save_figure
from experiments.epilepsy import FOLDER, draw, jobs, measure, verdicts

FIXED = {0.0: 0.34, 0.5: 0.22, 1.0: 0.20, 1.5: 0.20, 2.0: 0.21}


def fixed(source):
    return [
        {"part": "fixed", "source": source, "method": "fixed", "hz": hz, "seizures": level, "pulses": hz / 5}
        for hz, level in FIXED.items()
    ]


def runs(source, about, seizures, pulses, seconds=1.0):
    """Three runs with these means and a small spread."""
    row = {"source": source, "penalty": 40.0, "seconds": seconds} | about
    return [row | {"seed": seed, "seizures": seizures + 1e-4 * seed, "pulses": pulses} for seed in range(3)]


def study(source="substitute", kbsf=(0.1, 0.1), fqit20=(0.1, 0.15), fqit200=(0.3, 0.3), lspi=(0.4, 0.01), faster=120):
    """Rows of all methods; by default every claim holds."""
    kernel = {"part": "kernels", "scaling": "raw", "tau_bar": 1.0}
    rows = fixed(source)
    rows += runs(source, kernel | {"method": "KBSF"}, *kbsf) + runs(source, kernel | {"method": "LSPI"}, *lspi)
    rows += runs(source, {"part": "trees", "method": "FQIT", "eta": 20}, *fqit20, seconds=float(faster))
    rows += runs(source, {"part": "trees", "method": "FQIT", "eta": 200}, *fqit200)
    return rows + runs(source, kernel | {"part": "trees", "method": "KBSF", "timed": True}, *kbsf)


def holds(rows):
    return {found.claim: found.holds for found in verdicts(rows)}


def test_where_all_is_as_in_the_paper_all_claims_hold():
    assert holds(study()) == dict.fromkeys(("EP1", "EP2", "EP3"), True)


def test_without_fitted_q_nothing_is_said():
    assert set(holds(fixed("substitute")).values()) == {None}


@pytest.mark.parametrize(
    "claim, changed",
    [
        ("EP1", {"kbsf": (0.1, 0.25)}),  # fewer seizures than 1 Hz, for more pulses
        ("EP1", {"fqit20": (0.25, 0.15)}),  # fewer pulses, for more seizures
        ("EP2", {"lspi": (0.15, 0.05)}),  # fewer of both than 0.5 Hz
        ("EP2", {"fqit200": (0.15, 0.15)}),
        ("EP3", {"faster": 99}),
    ],
)
def test_a_claim_fails_alone_where_its_own_figures_do(claim, changed):
    found = holds(study(**changed))
    assert [name for name, value in found.items() if not value] == [claim]


@pytest.mark.parametrize("on_recordings, expected", [((0.1, 0.1), True), ((0.3, 0.3), False)])
def test_where_recordings_were_run_they_decide(on_recordings, expected):
    rows = study(kbsf=(0.3, 0.3) if expected else (0.1, 0.1)) + study("recordings", kbsf=on_recordings)
    assert holds(rows)["EP1"] is expected


def test_recordings_are_run_only_where_their_folder_is_named(monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    assert {job.settings["source"] for job in jobs("laptop")} == {"substitute"}
    monkeypatch.setenv(FOLDER, "a-folder")
    found = jobs("laptop")
    assert {job.settings["source"] for job in found} == {"substitute", "recordings"}
    assert "a-folder" not in str(found)  # settings go into files


def test_the_picture_is_drawn_for_one_source_and_for_two(tmp_path):
    for name, rows in (("one", study()), ("two", study() + study("recordings"))):
        save_figure(draw(rows), tmp_path, name)
        assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_the_same_seed_gives_the_same_fractions():
    settings = {"part": "kernels", "source": "substitute", "penalty": 40.0, "size": "smoke"}
    first, again = ([(row["seizures"], row["pulses"]) for row in measure(settings, 3)] for _ in range(2))
    assert first == again
