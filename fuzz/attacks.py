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
from kbrl import judge_sums, load_log, load_model, load_sums, save_model, save_sums
from kbrl.data.expressions import Coded, ExpressionError, parse
from kbrl.storage import model_file, sums_file
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
    """Load a damaged model, or damaged sums: only a file with the same bytes loads."""
    changed = mutated(raw, mutations)
    path.write_bytes(changed)
    try:
        load_sums(path) if path.suffix == ".sums" else load_model(path)
    except ValueError as error:
        assert len(str(error)) < 2000
        return "refused"
    assert changed == raw
    return "read"


def load_forged_model(path: Path, raw: bytes, forgery: Forgery) -> str:
    """Load a model whose contents were changed under a right seal: what loads also answers, merges and is saved."""
    path.write_bytes(raw)
    try:
        forge(path, model_file.FORMAT, model_file.VERSION, forgery)
        model = load_model(path)
    except ValueError as error:
        assert len(str(error)) < 2000
        return "refused"
    model.predict(model.reps[:2])  # what was loaded may not fail later
    (model + model).predict(model.reps[:1])
    save_model(model, path)
    return "read"


def load_forged_sums(path: Path, raw: bytes, forgery: Forgery) -> str:
    """Load sums that were changed under a right seal: what loads is also judged and saved."""
    path.write_bytes(raw)
    try:
        forge(path, sums_file.FORMAT, sums_file.VERSION, forgery)
        evaluator = load_sums(path)
        assert judge_sums(evaluator).verdict
        save_sums(evaluator, path)
    except ValueError as error:
        assert len(str(error)) < 2000
        return "refused"
    return "read"


Forgery = tuple[float, float, Any, float]


def forge(path: Path, name_of_format: str, version: int, forgery: Forgery) -> None:
    """Change one fact or one number of a sealed file, and seal it again."""
    facts, arrays, _ = read_sealed(path, name_of_format, version)
    which, where, fact, number = forgery
    names = [*sorted(facts), *sorted(arrays)]
    name = names[int(which * len(names))]
    if name in arrays:
        array = arrays[name].copy()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.flat[int(where * array.size)] = number if array.dtype.kind == "f" else int(np.nan_to_num(number) % 99)
        arrays[name] = array
    else:
        facts[name] = _forged(facts[name], where, fact)
    with open(path, "wb") as file:
        write_sealed(file, name_of_format, version, facts, arrays)


def _forged(fact: Any, where: float, other: Any) -> Any:
    """Return a fact with one of its entries, at any depth, or all of it replaced by another."""
    if where > 0.9 or not isinstance(fact, (dict, list)) or not fact:
        return other
    keys = sorted(fact) if isinstance(fact, dict) else list(range(len(fact)))
    key, rest = keys[int(where / 0.9 * len(keys))], where / 0.9 * len(keys) % 1
    changed = fact.copy()
    changed[key] = _forged(fact[key], rest, other)
    return changed


def compute_expression(path: Path, raw: bytes, mutations: list[Mutation]) -> str:
    """Compute damaged expressions: each gives numbers, or is refused by an ExpressionError."""
    path.write_bytes(mutated(raw, mutations))
    numbers, texts = np.array([1.0, np.nan, -3.0]), Coded(np.array([0, 1, -1]), ("home", "ward"))
    outcome = "refused"
    for text in path.read_bytes().decode("utf-8", "replace").splitlines():
        try:
            expression = parse(text)
        except ExpressionError as error:
            assert len(str(error)) < 5000
            continue
        columns = {name: texts if kind == "text" else numbers for name, kind in expression.columns.items()}
        assert len(expression.numbers(columns or {"any": numbers})) == 3
        outcome = "read"
    return outcome


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
        if path.suffix in (".kbrl", ".sums"):
            forged = load_forged_model if path.suffix == ".kbrl" else load_forged_sums
            found[f"damaged {path.name}"] = path, load_damaged_model, MUTATIONS
            found[f"forged {path.name}"] = path, forged, FORGERIES
        else:
            attack = compute_expression if path.suffix == ".txt" else read_damaged_log
            found[f"damaged {path.name}"] = path, attack, MUTATIONS
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
