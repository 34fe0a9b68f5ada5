"""No damaged model file ever loads, and none that was made to deceive does any harm."""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from kbrl import KBSF, Transitions, fit_log, open_log
from kbrl.storage import sealed_file
from kbrl.storage.model_file import FORMAT, VERSION, load_model, save_model
from kbrl.storage.sealed_file import read_sealed
from storage.saved_models import (
    FORMS,
    STATES,
    fitted,
    resealed,
    small_file,
)

MIXED = {
    "observation_x": np.arange(24.0),
    "observation_y": np.where(np.arange(24) % 3, "low", "high"),
    "action": np.arange(24) % 2,
    "reward": np.ones(24),
    "terminated": np.arange(24) % 6 == 5,
}


def assert_refused(path, raw, way="cannot be loaded"):
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=way) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_no_file_with_a_flipped_bit_loads(tmp_path):
    path, raw = small_file(tmp_path)
    every_header_bit = range(8 * (8 + int.from_bytes(raw[:8], "little")))
    random_bits = np.random.default_rng(0).integers(8 * len(raw), size=10_000).tolist()
    with open(path, "r+b", buffering=0) as file:
        for place in [*random_bits, *every_header_bit]:
            byte = raw[place // 8]
            os.pwrite(file.fileno(), bytes([byte ^ (1 << place % 8)]), place // 8)
            with pytest.raises(ValueError, match="cannot be loaded"):
                load_model(path)
            os.pwrite(file.fileno(), bytes([byte]), place // 8)
    load_model(path)


def test_no_file_that_was_cut_short_or_added_to_loads(tmp_path):
    path, raw = small_file(tmp_path)
    for length in reversed(range(len(raw))):
        os.truncate(path, length)
        with pytest.raises(ValueError, match="cannot be loaded"):
            load_model(path)
    for extra in (b"\0", b" ", b"\n", bytes(8), raw):
        assert_refused(path, raw + extra, "SHA-256")


def test_swapped_tensors_and_edited_facts_do_not_load(tmp_path):
    path, raw = small_file(tmp_path)
    assert_refused(path, raw.replace(b'"weight"', b'"Weight"', 1), "SHA-256")
    swapped = raw.replace(b'"weight"', b'"______"').replace(b'"values"', b'"weight"').replace(b'"______"', b'"values"')
    assert_refused(path, swapped, "SHA-256")
    assert_refused(path, raw.replace(b"0.99", b"0.98", 1), "SHA-256")
    assert_refused(path, raw.replace(b"1e-08", b"1E-08", 1), "SHA-256")  # the same number


def test_other_versions_and_other_files_get_a_clear_answer(tmp_path):
    path, raw = small_file(tmp_path)
    version = b'"format_version":"2"'
    assert raw.count(version) == 1
    assert_refused(
        path,
        raw.replace(version, version.replace(b"2", b"3")),
        "version is 3.*reads versions 1 and 2.*Install the kbrl that",
    )
    assert_refused(path, raw.replace(version, version.replace(b"2", b"0")), "version is 0.*Load and save it with")
    assert_refused(path, raw.replace(b"kbrl model", b"kbrl tasks"), "says that it is 'kbrl tasks'")
    for other in (b"", b"a,b\n1,2\n", b"PK\3\4" + bytes(600), b"\xff" * 600, bytes(600)):
        assert_refused(path, other, "another kind of file, or damaged")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "nothing")


def test_the_seal_is_the_hash_of_the_file_with_the_seal_blank(tmp_path):
    _, raw = small_file(tmp_path)
    seal = re.search(rb'"sha256":"([0-9a-f]{64})"', raw).group(1)
    assert hashlib.sha256(raw.replace(seal, b"0" * 64)).hexdigest() == seal.decode()


def set_fact(*keys, value):
    def change(facts):
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = value

    return change


def put(name, value, at=0):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name].flat[at] = value

    return change


BAD_FACTS = {
    "facts have unknown fields: mood": set_fact("mood", value=1),
    "facts lack counts": lambda facts: facts.pop("counts"),
    "settings lack n_reps": lambda facts: facts["settings"].pop("n_reps"),
    "settings have unknown fields: colour": set_fact("settings", "colour", value="red"),
    "settings are not plain values": set_fact("settings", "n_reps", value=[1]),
    "discount must lie in": set_fact("planning", "discount", value=1.5),
    "discount is of the wrong kind": set_fact("planning", "discount", value="0.9"),
    "sample_neighbors must be above 0": set_fact("basis", "sample_neighbors", value=0),
    "arrays lack": set_fact("basis", "sample_neighbors", value=10**12),
    "width must be a finite number above 0": set_fact("basis", "sample_width", value=-1.0),
    "too large to convert": set_fact("basis", "sample_width", value=10**400),
    "profile must be one of": set_fact("basis", "profile", value="square"),
    "neighborhoods must be one of": set_fact("basis", "neighborhoods", value="none"),
    "but counts of 1 actions": set_fact("counts", value=[12]),
    "counts must be whole numbers": set_fact("counts", value=[-1, 3]),
    "action_labels must differ": set_fact("action_labels", "values", value=[1, 1]),
    "action_labels must be of one kind": set_fact("action_labels", "values", value=[1, "1"]),
    "action_labels are not of the type": set_fact("action_labels", "values", value=["0", "1"]),
    "action_labels are of an unknown type": set_fact("action_labels", "dtype", value="V8"),
    "columns name 3 state variables": set_fact("columns", value=["a", "b", "c"]),
    "no valid residual": set_fact("solution", "residual", value=-1.0),
    "facts lack history": lambda facts: facts.pop("history"),
    "has_changed is of the wrong kind": set_fact("history", "has_changed", value="no"),
    "flags must be texts": set_fact("history", "flags", value=[1]),
    "held_out must be a share": set_fact("history", "held_out", value=1.5),
    "names must be those of 2 state variables": set_fact("names", "state", value=["x"]),
    "names must differ": set_fact("names", "others", value=["x"]),
    "names must be strings": set_fact("names", "state", value=["x", 2]),
    "fit_settings have unknown fields: colour": set_fact("fit_settings", "colour", value="red"),
    "fit_settings are not plain values": set_fact("fit_settings", "n_reps", value=[1]),
    "terminals must be one of": set_fact("fit_settings", "terminals", value="never"),
    "batches must be pairs": set_fact("sketch", "batches", value=[[13, "0" * 16]]),
    "a number of transitions and 16 hexadecimal digits": set_fact("sketch", "batches", value=[[3, 7]]),
    "batches must fall": set_fact("sketch", "batches", value=[[3, "0" * 16], [4, "0" * 16]]),
    "sketch lack total": lambda facts: facts["sketch"].pop("total"),
    "total must be 16 hexadecimal digits": set_fact("sketch", "total", value="12"),
    "it is of another number of transitions": set_fact("sketch", "n_rows", value=11),
    "solver must be one of": set_fact("planning", "solver", value="x"),
    "scaling must be one of": set_fact("settings", "scaling", value="foo"),
    "reps must be one of": set_fact("settings", "reps", value="foo"),
    "random_state must be": set_fact("settings", "random_state", value=-1),
    "the samples are missing": set_fact("settings", "q_function", value="samples"),
    "the list and the total disagree": set_fact("sketch", "total", value="0" * 16),
    "up to the largest, and be no more than 1024": set_fact("sketch", "largest", value="0" * 15 + "1"),
    "order differs from that of the settings": set_fact("fit_settings", "order", value=1),
    "action_labels of the type <U99999 ask for": lambda facts: facts.update(
        action_labels={"dtype": "<U99999", "values": [f"a{k}" for k in range(9000)]}, counts=[0] * 9000
    ),
}
BAD_ARRAYS = {
    "arrays have unknown fields: extra": lambda arrays: arrays.update(extra=np.zeros(2)),
    "arrays lack policy": lambda arrays: arrays.pop("policy"),
    "scale or reps are missing": lambda arrays: arrays.pop("reps"),
    "scale must be above 0": put("scale", 0.0),
    "reps holds numbers that are not finite": put("reps", np.nan),
    "q holds numbers that are not finite": put("q", np.inf),
    "q and the statistics differ": put("q", -np.inf),
    "values are not the largest q": put("values", 1e9),
    "policy names actions": put("policy", 2),
    "policy names actions that are not the best": lambda arrays: arrays.update(policy=arrays["q"].argmin(axis=1)),
    "reps are too large": put("reps", 1e200),
    "centre is too large for the scale": lambda arrays: arrays.update(centre=np.full(2, 1e160)),
    "reps are too large for the scale": lambda arrays: arrays.update(scale=np.full(2, 1e308), reps=9 + arrays["reps"]),
    "reward_sum is too large": put("reward_sum", 1e300),
    "centre is too large": lambda arrays: arrays.update(centre=np.full(2, 1e305), scale=np.full(2, 1e-10)),
    "weight and nearest must not be below 0": put("nearest", -1.0),
    "weight and nearest speak of different pairs": put("nearest", np.inf),
    "transition_sum must not be below 0": put("transition_sum", -0.5),
    "probabilities that exceed 1": put("transition_sum", 1e6),
    "weight must have the shape": lambda arrays: arrays.update(weight=arrays["weight"][:, :2]),
    "weight has the wrong type": lambda arrays: arrays.update(weight=arrays["weight"] > 0),
    "sketch.hashes must rise": put("sketch.hashes", -1),
    "sketch.counts do not fit": put("sketch.counts", 2),
    "differ in length": lambda arrays: arrays.update({"sketch.counts": arrays["sketch.counts"][:3]}),
    "and sketch.contents differ": lambda arrays: arrays.update({"sketch.contents": arrays["sketch.contents"][:3]}),
    "sketch.episodes must rise": lambda arrays: arrays.update({"sketch.episodes": np.array([2, 1])}),
    "arrays lack sketch.counts": lambda arrays: arrays.pop("sketch.counts"),
    "scale has the shape": lambda arrays: arrays.update(scale=np.zeros((2, 2))),
}


@pytest.mark.parametrize("fault", [*BAD_FACTS, *BAD_ARRAYS])
def test_a_sealed_file_that_makes_no_valid_model_is_refused_by_the_name_of_its_fault(fault, tmp_path):
    path, _ = small_file(tmp_path)
    resealed(path, BAD_FACTS.get(fault), BAD_ARRAYS.get(fault))
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_a_file_from_before_episodes_were_held_out_is_loaded(tmp_path):
    path, _ = small_file(tmp_path)
    resealed(path, lambda facts: facts["history"].pop("held_out"), None)
    assert load_model(path).held_out is None


def test_a_file_from_before_there_were_flags_is_loaded(tmp_path):
    path, _ = small_file(tmp_path)
    resealed(path, lambda facts: facts["history"].pop("flags"), None)
    assert load_model(path).flags == ()


BAD_SPARSE = {
    "row_starts are wrong": put("transition_sum.row_starts", 2**62, at=3),
    "columns are wrong": put("transition_sum.columns", -1),
    "columns are wrong ": put("transition_sum.columns", 99),
    "probabilities that exceed 1": put("transition_sum.data", 1e6),
}


@pytest.mark.parametrize("fault", BAD_SPARSE)
def test_bad_sparse_sums_are_refused(fault, tmp_path):
    save_model(fitted(**FORMS["per chunk, sparse"]), tmp_path / "m")
    resealed(tmp_path / "m", change_arrays=BAD_SPARSE[fault])
    with pytest.raises(ValueError, match=fault.strip()):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    "change", [put("neighbors.distances", -1.0), put("neighbors.distances", 9.0), put("samples.action_indices", 5)]
)
def test_bad_neighbours_and_samples_are_refused(change, tmp_path):
    save_model(fitted(**FORMS["samples with neighbours"]), tmp_path / "m")
    resealed(tmp_path / "m", change_arrays=change)
    with pytest.raises(ValueError, match=r"must rise|not there"):
        load_model(tmp_path / "m")


TOO_LARGE = ["neighbors.next_states", "neighbors.rewards", "samples.states", "samples.next_states", "samples.rewards"]


@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_with_which_later_work_would_overflow_are_refused(name, tmp_path):
    save_model(fitted(**FORMS["samples with neighbours"]), tmp_path / "m")
    resealed(tmp_path / "m", change_arrays=put(name, 1e305))
    with pytest.raises(ValueError, match=f"{name} are too large"):
        load_model(tmp_path / "m")


def test_a_message_about_a_file_does_not_quote_all_of_it(tmp_path):
    path, _ = small_file(tmp_path)
    resealed(path, set_fact("columns", value=["x" * 10_000, 1]))
    with pytest.raises(ValueError, match="columns must be strings") as caught:
        load_model(path)
    assert len(str(caught.value)) < 1000


def test_random_changes_under_a_valid_seal_give_a_model_or_a_value_error(tmp_path):
    path, raw = small_file(tmp_path)
    rng = np.random.default_rng(1)
    values = [None, True, -1, 0, 3, 10**30, 0.5, -1e308, "", "x", [], [1], {}, {"a": 1}]
    for _ in range(300):
        path.write_bytes(raw)
        facts = read_sealed(path, FORMAT, VERSION).facts
        fact = rng.choice(sorted(facts))
        inner = sorted(facts[fact]) if isinstance(facts[fact], dict) and rng.random() < 0.8 else None
        keys = (fact, rng.choice(inner)) if inner else (fact,)
        resealed(path, set_fact(*keys, value=values[rng.integers(len(values))]))
        with contextlib.suppress(ValueError):
            load_model(path).predict(STATES[:2])


def test_loading_runs_no_pickle(tmp_path):
    path, _ = small_file(tmp_path)
    code = (
        "import sys; from kbrl.storage.model_file import load_model\n"
        "seen = []\n"
        "watched = ('pickle.find_class', 'exec', 'compile', 'os.system', 'subprocess.Popen', 'marshal.loads')\n"
        "sys.addaudithook(lambda event, args: seen.append(event) if event in watched else None)\n"
        f"load_model({str(path)!r}); found = list(seen); print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_with_a_hole_that_does_not_fit_into_memory_is_refused_unread(tmp_path):
    path, _ = small_file(tmp_path)
    os.truncate(path, 60 * 10**9)
    with pytest.raises(ValueError, match=r"it asks for 60 GB of memory, but the file has .* raise the limit"):
        load_model(path)


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "model.kbrl")
    with pytest.raises(OSError, match="is a pipe or a device"):
        load_model(tmp_path / "model.kbrl")


def test_words_for_nan_are_not_read_as_numbers(tmp_path, monkeypatch):
    path, _ = small_file(tmp_path)
    monkeypatch.setattr(sealed_file, "_json", lambda value: json.dumps(value, separators=(",", ":")))
    resealed(path, set_fact("planning", "tolerance", value=float("nan")))
    with pytest.raises(ValueError, match="NaN is not JSON"):
        load_model(path)


def test_a_setting_that_is_one_number_cannot_be_an_array(tmp_path):
    path = tmp_path / "m"
    save_model(fitted(order=1), path)

    def moved(arrays):
        arrays["settings.plan_decisions"] = np.ones(3)

    resealed(path, lambda facts: facts["settings"].pop("plan_decisions"), moved)
    with pytest.raises(ValueError, match="settings are arrays, but should be plain values: plan_decisions"):
        load_model(path)


LONG_PLANS = {"plan_decisions": 10**9, "plan_hold": 10**9, "plan_window": 10**9}


@pytest.mark.parametrize("where", ["settings", "fit_settings"])
@pytest.mark.parametrize("name", LONG_PLANS)
def test_plans_that_would_never_end_are_refused(name, where, tmp_path):
    path = tmp_path / "m"
    save_model(fitted(order=1), path)
    resealed(path, set_fact(where, name, value=LONG_PLANS[name]))
    with pytest.raises(ValueError, match=r"at most 10,000 steps|must have \d+ columns"):
        load_model(path)


def test_a_recipe_of_a_great_many_variables_is_refused_before_they_are_named(tmp_path):
    path = tmp_path / "m"
    save_model(fit_log(KBSF(n_reps=3, min_cases=1, random_state=0), open_log(MIXED)), path)

    def widened(facts):
        facts["recipe"]["columns"][0] |= {"kind": "vector", "width": 10**12}

    resealed(path, widened)
    with pytest.raises(ValueError, match="the recipe makes other state variables"):
        load_model(path)


ODD_CIRCLES = {
    "other scales than the variables": lambda shapes: np.put(shapes, 2, 1e-300),
    "too large": lambda shapes: np.put(shapes, 4, 1e200),
}


@pytest.mark.parametrize("fault", ODD_CIRCLES)
def test_circles_that_no_state_can_lie_on_are_refused(fault, tmp_path):
    angles = np.random.default_rng(0).uniform(-3, 3, 200)
    states = np.column_stack([np.cos(angles), np.sin(angles)])
    path, log = tmp_path / "m", Transitions(states, [0, 1] * 100, angles, states)
    save_model(KBSF(n_reps=6, order=1, random_state=0).fit(log), path)

    def changed(arrays):
        arrays["circles.shapes"] = arrays["circles.shapes"].copy()
        ODD_CIRCLES[fault](arrays["circles.shapes"])

    resealed(path, None, changed)
    with pytest.raises(ValueError, match=fault):
        load_model(path)


@pytest.mark.parametrize("change", [put("lines.span", -1e308, at=2), put("lines.span", 7.0, at=0)])
def test_ranges_of_states_that_cannot_be_are_refused(change, tmp_path):
    save_model(fitted(order=1), tmp_path / "m")
    resealed(tmp_path / "m", change_arrays=change)
    with pytest.raises(ValueError, match=r"lines\.span must be ranges"):
        load_model(tmp_path / "m")
