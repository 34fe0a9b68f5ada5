"""The model file: the same answers and the same learning, and no damaged file ever loads."""

import contextlib
import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from kbrl import KBSF, KbrlWarning, NotFittedError, Transitions
from kbrl.data.sealed import read_sealed, write_sealed
from kbrl.learners import model_file
from kbrl.learners.model_file import FORMAT, VERSION, load_model, read_model, save_model
from samples import random_log

LOG, LATER = random_log(n=120, seed=1), random_log(n=80, seed=2)
STATES = np.random.default_rng(0).random((300, 2))
REPS = np.random.default_rng(5).random((12, 2))

FORMS = {
    "dense": {},
    "dense sums, sparse D": {"rep_neighbors": 3},
    "neighbours": {"sample_neighbors": 3},
    "neighbours, sparse D": {"sample_neighbors": 3, "rep_neighbors": 2},
    "per chunk": {"sample_neighbors": 3, "neighborhoods": "per_chunk"},
    "per chunk, sparse": {"sample_neighbors": 3, "rep_neighbors": 2, "neighborhoods": "per_chunk"},
    "hard": {"aggregation": "hard"},
    "gaussian": {"profile": "gaussian"},
    "a width a representative state": {"reps": REPS, "rep_width": np.linspace(0.1, 0.5, 12)},
    "growing": {"grow_distance": 0.3},
    "growing neighbours": {"grow_below": 0.01, "sample_neighbors": 2},
    "terminals continue": {"terminals": "continue"},
    "samples": {"q_function": "samples"},
    "samples with neighbours": {"q_function": "samples", "sample_neighbors": 4},
    "given scaling": {"scaling": np.array([1.0, 2.0])},
    "no scaling, range": {"scaling": "range", "solver": "policy iteration", "tolerance": 1e-4},
}


def fitted(log=LOG, **settings):
    return KBSF(**({"n_reps": 12, "random_state": 0} | settings)).fit(log)


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def assert_same_model(one, other):
    for name in ("reps_", "scale_", "growth_", "rep_q_", "rep_values_", "action_labels_"):
        assert_same_bits(getattr(one, name), getattr(other, name))
    assert_same_bits(one.solution_.policy, other.solution_.policy)
    assert_same_bits(one.q_values(STATES), other.q_values(STATES))
    assert_same_bits(one.statistics_.log_mass(), other.statistics_.log_mass())
    assert one.n_samples_ == other.n_samples_
    assert repr(one) == repr(other)


def small_file(tmp_path):
    path = tmp_path / "model.kbrl"
    save_model(KBSF(n_reps=3, random_state=0).fit(random_log(n=12)), path, columns=["x", "y"])
    return path, path.read_bytes()


def resealed(path, change_facts=None, change_arrays=None):
    """Write the file anew, with a valid seal around changed contents."""
    facts, arrays = read_sealed(path, FORMAT, VERSION)
    if change_facts:
        change_facts(facts)
    if change_arrays:
        change_arrays(arrays)
    with open(path, "wb") as file:
        write_sealed(file, FORMAT, VERSION, facts, arrays)


# --- round trip


@pytest.mark.parametrize("form", FORMS)
def test_a_loaded_model_answers_and_goes_on_learning_bit_for_bit(form, tmp_path):
    model = fitted(**FORMS[form])
    save_model(model, tmp_path / "m.kbrl")
    loaded = load_model(tmp_path / "m.kbrl")
    assert_same_model(model, loaded)
    for chunk in (LATER, LOG, LATER[:1]):
        model.partial_fit(chunk)
        loaded.partial_fit(chunk)
        assert_same_model(model, loaded)
    assert model.act(STATES[0]) == loaded.act(STATES[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_loaded_model_saves_to_the_same_bytes(form, tmp_path):
    save_model(fitted(**FORMS[form]), tmp_path / "one")
    save_model(load_model(tmp_path / "one"), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_answers_of_a_loaded_model_need_no_solving(tmp_path, monkeypatch):
    save_model(fitted(), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    monkeypatch.setattr("kbrl.learners.reduced_model.solve", lambda *a, **k: pytest.fail("it solved"))
    loaded.predict(STATES)


def test_a_model_with_data_not_yet_solved_for_is_solved_before_it_is_saved(tmp_path):
    model = fitted().partial_fit(LATER)
    save_model(model, tmp_path / "m")
    assert_same_model(model, load_model(tmp_path / "m"))


def test_a_shrunken_a_merged_and_a_forgetful_model_come_back(tmp_path):
    shared = {"reps": REPS, "scaling": np.array([0.3, 0.3])}
    shrunken, merged, forgetful = fitted(), fitted(**shared) + fitted(LATER, **shared), fitted()
    shrunken.shrink(0.3)
    forgetful.forget(LOG[:119])
    for model in (shrunken, merged, forgetful):
        save_model(model, tmp_path / "m")
        loaded = load_model(tmp_path / "m")
        assert_same_model(model, loaded)
        assert_same_model(model.partial_fit(LATER), loaded.partial_fit(LATER))


def test_settings_that_were_changed_after_fitting_count_from_the_next_fit_on_as_before(tmp_path):
    model = fitted().set_params(sample_width=3.0, discount=0.5, neighborhoods="per_chunk", sample_neighbors=2)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_same_model(model.partial_fit(LATER), loaded.partial_fit(LATER))
    assert_same_model(model.fit(LATER), loaded.fit(LATER))


LABELS = {
    "int": [7, -3, 2],
    "str": ["low", "höher", "a much longer name"],
    "float": [0.1, -2.5, 1e300],
    "bool": [False, True],
    "int8": np.array([1, 2, 3], dtype=np.int8),
    "float32": np.array([0.1, 0.2], dtype=np.float32),
    "object": np.array(["a", "bc"], dtype=object),
    "uint64": np.array([2**63, 1], dtype=np.uint64),
}


@pytest.mark.parametrize("kind", LABELS)
def test_action_labels_come_back_with_their_type(kind, tmp_path):
    labels = np.array(LABELS[kind])
    actions = labels[np.arange(30) % len(labels)]
    log = Transitions(LOG.states[:30], actions, LOG.rewards[:30], LOG.next_states[:30], action_labels=labels)
    model = fitted(log, n_reps=5)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.action_labels_.dtype == labels.dtype
    assert loaded.action_labels_.tolist() == labels.tolist()
    answers = zip(loaded.predict(STATES).tolist(), model.predict(STATES).tolist())
    assert all(type(one) is type(other) and one == other for one, other in answers)


def test_labels_of_other_kinds_are_refused_before_anything_is_written(tmp_path):
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")
    log = Transitions(LOG.states[:2], days, LOG.rewards[:2], LOG.next_states[:2])
    with pytest.raises(ValueError, match="action labels that are whole numbers"):
        save_model(fitted(log, n_reps=1), tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "columns", [None, ["age", "größe"], {"state": ["age", "size"], "action": "dose", "terminated": None}]
)
def test_column_names_come_back(columns, tmp_path):
    save_model(fitted(), tmp_path / "m", columns=columns)
    saved = read_model(tmp_path / "m")
    assert saved.columns == columns
    assert saved.library_version == model_file.__version__


@pytest.mark.parametrize("columns", [["only one"], [1, 2], "xy", {"state": [1]}, {1: "x"}, {"state": {"a": "b"}}])
def test_bad_column_names_are_refused(columns, tmp_path):
    with pytest.raises(ValueError, match="column"):
        save_model(fitted(), tmp_path / "m", columns=columns)


def test_any_safetensors_reader_can_open_the_file(tmp_path):
    model = fitted()
    save_model(model, tmp_path / "m")
    with safe_open(tmp_path / "m", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("q"), model.rep_q_)
        assert json.loads(file.metadata()["counts"]) == np.bincount(LOG.action_indices).tolist()


def test_what_cannot_be_stored_is_refused_or_announced(tmp_path):
    with pytest.raises(ValueError, match="holds no functions, but profile is"):
        save_model(fitted(profile=lambda z: np.exp(-z)), tmp_path / "m")
    was_function = fitted(profile=lambda z: np.exp(-z)).set_params(profile="gaussian")
    with pytest.raises(ValueError, match="was fitted with profile="):
        save_model(was_function, tmp_path / "m")
    with pytest.warns(KbrlWarning, match="generator is not stored"):
        save_model(fitted(random_state=np.random.default_rng(0)), tmp_path / "m")
    assert load_model(tmp_path / "m").random_state is None
    with pytest.raises(NotFittedError):
        save_model(KBSF(), tmp_path / "n")
    with pytest.raises(TypeError, match="saves a KBSF, but it got str"):
        save_model("model", tmp_path / "n")
    assert os.listdir(tmp_path) == ["m"]


# --- damage


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
    version = b'"format_version":"1"'
    assert raw.count(version) == 1
    assert_refused(path, raw.replace(version, version.replace(b"1", b"2")), "version is 2.*Install the kbrl that")
    assert_refused(path, raw.replace(version, version.replace(b"1", b"0")), "version is 0.*Load and save it with")
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
    "weight and nearest must not be below 0": put("nearest", -1.0),
    "weight and nearest speak of different pairs": put("nearest", np.inf),
    "transition_sum must not be below 0": put("transition_sum", -0.5),
    "probabilities that exceed 1": put("transition_sum", 1e6),
    "weight must have the shape": lambda arrays: arrays.update(weight=arrays["weight"][:, :2]),
    "weight has the wrong type": lambda arrays: arrays.update(weight=arrays["weight"] > 0),
    "scale has the shape": lambda arrays: arrays.update(scale=np.zeros((2, 2))),
}


@pytest.mark.parametrize("fault", [*BAD_FACTS, *BAD_ARRAYS])
def test_a_sealed_file_that_makes_no_valid_model_is_refused_by_the_name_of_its_fault(fault, tmp_path):
    path, _ = small_file(tmp_path)
    resealed(path, BAD_FACTS.get(fault), BAD_ARRAYS.get(fault))
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


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
        "import sys; from kbrl.learners.model_file import load_model\n"
        "seen = []\n"
        "watched = ('pickle.find_class', 'exec', 'compile', 'os.system', 'subprocess.Popen', 'marshal.loads')\n"
        "sys.addaudithook(lambda event, args: seen.append(event) if event in watched else None)\n"
        f"load_model({str(path)!r}); found = list(seen); print(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- kills, full disks, two writers

KILLS = """
import json, os, random, signal, sys, time
import numpy as np
from kbrl import KBSF, Transitions
from kbrl.learners.model_file import load_model, save_model
folder, n_kills = sys.argv[1], int(sys.argv[2])
path, rng = os.path.join(folder, "model.kbrl"), np.random.default_rng(0)
def model(n):
    s = rng.random((n, 2))
    return KBSF(reps=rng.random((400, 2)), n_jobs=1).fit(Transitions(s, np.arange(n) % 2, s[:, 0], rng.random((n, 2))))
old, new = model(50), model(60)
save_model(old, path)
def save_in_child(model):
    child = os.fork()
    if child == 0:
        save_model(model, path)
        os._exit(0)
    return child
start = time.perf_counter()
for _ in range(3):
    os.waitpid(save_in_child(old), 0)
duration = (time.perf_counter() - start) / 3
random.seed(0)
found, litter = {50: 0, 60: 0}, 0
for kill in range(n_kills):
    child = save_in_child((new, old)[kill % 2])
    time.sleep(random.random() * 1.2 * duration)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    litter += len(os.listdir(folder)) > 1
    found[load_model(path).n_samples_] += 1
save_model(new, path)
print(json.dumps({"found": sum(found.values()), "old": found[50], "new": found[60], "litter": litter,
                  "left": os.listdir(folder), "last": load_model(path).n_samples_, "seconds": duration}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_a_kill_during_a_save_leaves_the_old_or_the_new_file_and_no_litter_after_the_next_save(tmp_path):
    n_kills = int(os.environ.get("KBRL_KILLS", "40"))
    call = [sys.executable, "-W", "ignore", "-c", KILLS, str(tmp_path), str(n_kills)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    print(result)
    assert result["found"] == n_kills
    assert result["litter"] > 0  # else no kill came during a save
    assert result["left"] == ["model.kbrl"]
    assert result["last"] == 60


def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    path, raw = small_file(tmp_path)
    code = (
        "import resource, sys\nfrom kbrl.learners.model_file import load_model, save_model\n"
        f"model = load_model({str(path)!r})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"save_model(model, {str(path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "The model was not saved: File too large. What was there before is unchanged." in done.stderr
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_an_error_at_any_step_of_a_save_leaves_the_old_file_whole(where, tmp_path, monkeypatch):
    path, raw = small_file(tmp_path)

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((model_file, "write_sealed") if where == "write" else (os, where)), fail)
    with pytest.raises(OSError, match="The model was not saved: No space left") as caught:
        save_model(fitted(), path)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert path.read_bytes() == raw
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_is_missing_or_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"The model was not saved.*nowhere"):
        save_model(fitted(), tmp_path / "nowhere" / "m")
    path, raw = small_file(tmp_path)

    def refuse_to_create(name, flags, *mode, **more):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))

    with monkeypatch.context() as patched:  # tests may run as root, whom no folder refuses
        patched.setattr(os, "open", refuse_to_create)
        with pytest.raises(PermissionError, match="The model was not saved: Permission denied"):
            save_model(fitted(), path)
    assert path.read_bytes() == raw


def test_a_save_sweeps_only_what_a_dead_save_of_the_same_file_left(tmp_path):
    dead, others = ".m.123-0123abcd.part.kbrl", [".m.x.123-0123abcd.part.kbrl", ".m.123.part.kbrl", ".m.kbrl", "notes"]
    for name in [dead, *others]:
        (tmp_path / name).write_bytes(b"?")
    save_model(fitted(), tmp_path / "m.kbrl")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "m.kbrl"])


def test_a_save_does_not_sweep_one_that_is_going_on(tmp_path, monkeypatch):
    path = Path(tmp_path / "m.kbrl")
    write, first, second = model_file.write_sealed, fitted(), fitted(LATER)

    def write_after_another_save(file, *contents):
        monkeypatch.setattr(model_file, "write_sealed", write)
        save_model(second, path)
        assert load_model(path).n_samples_ == len(LATER)
        write(file, *contents)

    monkeypatch.setattr(model_file, "write_sealed", write_after_another_save)
    save_model(first, path)
    assert load_model(path).n_samples_ == len(LOG)
    assert os.listdir(tmp_path) == ["m.kbrl"]


def test_saving_twice_gives_the_same_file_and_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("one", "two"):
            save_model(fitted(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
