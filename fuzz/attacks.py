"""One attack: a valid file, mutations of it, and what may happen when it is read."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fuzz.seeds import CORPUS
from kbrl import load_log, load_model, save_model
from kbrl.storage.model_file import FORMAT, VERSION
from kbrl.storage.sealed_file import read_sealed, write_sealed

FOUND = CORPUS / "found"  # what broke once, kept for the tests
ODD_NUMBERS = [0.0, -1.0, 1e-320, 1e200, -1e308, float("nan"), float("inf"), 0.5, 3.0]
ODD_FACTS = [None, True, -1, 0, 3, 10**30, 0.5, -1e308, "", "x", "\ud800", "y" * 10_000, [], [1], {}, {"a": 1}]

# Where, as a fraction of the file, and what: a flipped bit, another byte, bytes cut out, bytes doubled, an end cut off.
Mutation = tuple[float, str, int]
WAYS = ("flip", "set", "cut", "double", "end", "huge")
MUTATIONS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(WAYS), st.integers(0, 255)), min_size=1, max_size=6
)


def mutated(raw: bytes, mutations: list[Mutation]) -> bytes:
    """Return the bytes of a file after some mutations."""
    changed = bytearray(raw)
    for where, way, value in mutations:
        place = int(where * len(changed))
        if way == "flip" and changed:
            changed[place] ^= 1 << value % 8
        elif way == "set" and changed:
            changed[place] = value
        elif way == "cut":
            del changed[place : place + value]
        elif way == "double":
            changed[place:place] = changed[place : place + value]
        elif way == "huge":
            changed[place : place + 4] = b"\xff\xff\xff\x7f"
        elif way == "end":
            del changed[place:]
    return bytes(changed)


def read_damaged_log(path: Path, raw: bytes, mutations: list[Mutation]) -> str:
    """Read a damaged log: it is read, or refused by a ValueError or an OSError."""
    path.write_bytes(mutated(raw, mutations))
    try:
        log = load_log(path)
    except (ValueError, OSError):
        return "refused"
    assert np.isfinite(log.states).all()
    assert np.isfinite(log.rewards).all()
    return "read"


def load_damaged_model(path: Path, raw: bytes, mutations: list[Mutation]) -> str:
    """Load a damaged model: only a file with the same bytes loads."""
    changed = mutated(raw, mutations)
    path.write_bytes(changed)
    try:
        load_model(path)
    except ValueError as error:
        assert len(str(error)) < 2000
        return "refused"
    assert changed == raw
    return "read"


def load_forged_model(path: Path, raw: bytes, forgery: tuple[float, float, Any, float]) -> str:
    """Load a model whose contents were changed under a right seal: what loads also answers, merges and is saved."""
    path.write_bytes(raw)
    facts, arrays, _ = read_sealed(path, FORMAT, VERSION)
    which, where, fact, number = forgery
    names = [*sorted(facts), *sorted(arrays)]
    name = names[int(which * len(names))]
    if name in arrays:
        array = arrays[name].copy()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.flat[int(where * array.size)] = number if array.dtype.kind == "f" else int(np.nan_to_num(number) % 99)
        arrays[name] = array
    elif isinstance(facts[name], dict) and facts[name] and where < 0.8:
        facts[name][sorted(facts[name])[int(where / 0.8 * len(facts[name]))]] = fact
    else:
        facts[name] = fact
    try:
        with open(path, "wb") as file:
            write_sealed(file, FORMAT, VERSION, facts, arrays)
        model = load_model(path)
        model.predict(np.zeros((2, model.basis.reps.shape[1])))
        (model + model).predict(np.zeros((1, model.basis.reps.shape[1])))
        save_model(model, path)
    except ValueError as error:
        assert len(str(error)) < 2000
        return "refused"
    return "read"


FORGERIES = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(ODD_FACTS),
    st.sampled_from(ODD_NUMBERS),
)


def attacks() -> dict[str, tuple[Path, Callable[..., str], st.SearchStrategy[Any]]]:
    """Return all attacks by name: the file they start from, what they do, and what they vary."""
    found: dict[str, tuple[Path, Callable[..., str], st.SearchStrategy[Any]]] = {}
    for path in sorted(path for path in CORPUS.iterdir() if path.is_file()):
        if path.suffix == ".kbrl":
            found[f"damaged {path.name}"] = path, load_damaged_model, MUTATIONS
            found[f"forged {path.name}"] = path, load_forged_model, FORGERIES
        else:
            found[f"damaged {path.name}"] = path, read_damaged_log, MUTATIONS
    return found


def run(name: str, n_examples: int, number: int) -> Counter[str]:
    """Run an attack some times; a failure is shrunk by hypothesis, kept in the corpus and raised."""
    start, attack, strategy = attacks()[name]
    raw, outcomes = start.read_bytes(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / start.name
        checks = [HealthCheck.too_slow, HealthCheck.data_too_large]

        @seed(number)
        @settings(max_examples=n_examples, deadline=None, database=None, suppress_health_check=checks,
                  phases=[Phase.generate, Phase.shrink])  # fmt: skip
        @given(strategy)
        def once(change: Any) -> None:
            outcomes[attack(path, raw, change)] += 1

        try:
            once()
        except BaseException:
            FOUND.mkdir(exist_ok=True)
            kept = FOUND / f"{number}-{start.name}"
            kept.write_bytes(path.read_bytes())
            raise
    return outcomes
