"""Checks of user input, and the wording of errors.

Input is checked once, where it enters; everything after that trusts it.  An error names the thing,
the rule, the value received and a way out.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from kbrl.arrays import Array, Booleans, Floats
from kbrl.profiles import PROFILES

# Squares of larger numbers overflow, and with them every distance.
LARGEST_COORDINATE = 1e150

LARGEST_NORM = 16.0  # below infinity: higher powers of small differences underflow


class NotFittedError(ValueError, AttributeError):
    """A learner was asked for something before it has learnt.

    It is a ValueError and an AttributeError, so that ``hasattr(learner, "mdp_")`` is False before ``fit``.

    >>> from kbrl import KBSF
    >>> KBSF().predict([[0.0]])
    Traceback (most recent call last):
    kbrl.checks.NotFittedError: This KBSF has not learnt anything yet. Call fit with transitions first.
    """


class KbrlWarning(UserWarning):
    """The model is valid, but something deserves attention: rows left out, actions rarely taken, data counted twice.

    To turn these warnings into errors:

    >>> import warnings
    >>> from kbrl import KbrlWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", KbrlWarning)
    """


def how_to_install(extra: str) -> str:
    """Return how to install the packages of one of the project's extras, for whoever has installed kbrl already."""
    return f"Install it with: pip install 'kbrl[{extra}]'."


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: 1 cell, 2 cells."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def as_rows(values: Any, name: str, *, n_dims: int | None = None) -> Floats:
    """Return finite numbers of shape (n, d), one state per row, or say what is wrong with them."""
    array = as_floats(values, name)
    if array.ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions, one row per state, but its shape is {array.shape}. "
            f"Pass [[x, y], ...]; a single state is [[x, y]]."
        )
    if len(array) == 0:
        raise ValueError(f"{name} must have at least one row, but it is empty: shape {array.shape}.")
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, but its shape is {array.shape}.")
    if n_dims is not None and array.shape[1] != n_dims:
        raise ValueError(
            f"{name} must have {n_dims} columns, one per state variable, but its shape is {array.shape}. "
            f"Pass the same variables, in the same order, as in the data."
        )
    check_finite(array, name)
    return array


def as_floats(values: Any, name: str) -> Floats:
    """Return an array of doubles; complex numbers, strings, masked entries and ragged lists are refused."""
    refuse_masked(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind in "OSU":  # strings such as "1.5" would be parsed silently
            array = _parse_numbers(array)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"their type is {array.dtype}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be real numbers, but {error}. Convert or drop what is not a number.") from None


def _parse_numbers(array: Array) -> Array:
    for index, value in np.ndenumerate(array):
        if not isinstance(value, (bool, int, float, Decimal, np.number, np.bool_)):
            place = index[0] if array.ndim else 0
            raise TypeError(f"row {place} holds {value.item() if isinstance(value, np.generic) else value!r}")
    return array.astype(np.float64)


def check_finite(array: Floats, name: str) -> None:
    """Refuse NaN and infinities, naming how many rows have them, the first one and its value."""
    bad = ~np.isfinite(array)
    if bad.any():
        refuse_rows(bad, array, name, "be finite", "Drop or repair these rows before learning.")


def refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array with masked entries: what is behind the mask would be taken for data."""
    if np.ma.is_masked(values):
        mask = np.atleast_1d(np.ma.getmaskarray(values))
        refuse_rows(mask, np.atleast_1d(values), name, "be free of masked entries", "Drop these rows or fill them in.")


def refuse_rows(bad: Booleans, values: Array, name: str, rule: str, way_out: str) -> None:
    """Raise the error for rows that break a rule; ``bad`` marks the entries at fault."""
    rows: Booleans = np.asarray(bad.reshape(len(bad), -1).any(axis=1))
    first = int(np.argmax(rows))
    value = values[first].tolist() if isinstance(values[first], np.ndarray) else values[first]
    value = value.item() if isinstance(value, np.generic) else value
    raise ValueError(
        f"{name} must {rule}, but {int(rows.sum())} of {len(rows)} rows are not; "
        f"the first is row {first}: {value!r}. {way_out}"
    )


def one_entry_per_row(array: Array, name: str) -> Array:
    """Return an array of one dimension, or say which shape it has."""
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, one entry per transition, but its shape is {array.shape}.")
    return array


def check_lengths(lengths: dict[str, int]) -> None:
    """Refuse fields of unequal length, naming each of them."""
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"All fields must have one row per transition, but {listing}. Cut or fill the odd ones out.")


def positive(value: Any, name: str) -> float:
    """Return a finite number above zero."""
    number = _real(value, name)
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number above 0, but it is {value!r}.")
    return number


def not_negative(value: Any, name: str) -> float:
    """Return a finite number not below zero."""
    number = _real(value, name)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be a finite number not below 0, but it is {value!r}.")
    return number


def in_unit_interval(value: Any, name: str, *, closed: bool = False) -> float:
    """Return a number in [0, 1), or in [0, 1] if closed."""
    number = _real(value, name)
    if not (0 <= number < 1 or (closed and number == 1)):
        interval = "[0, 1]" if closed else "[0, 1)"
        raise ValueError(f"{name} must lie in {interval}, but it is {value!r}.")
    return number


def whole(value: Any, name: str, *, at_least: int = 1) -> int:
    """Return a whole number not below a minimum."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, but it is {value!r}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, but it is {value!r}.")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """Return True or False; words such as "no" are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, but it is {value!r}.")
    return bool(value)


def one_of(value: Any, choices: Iterable[str], name: str) -> str:
    """Return the value if it is one of the choices."""
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, but it is {value!r}.")
    return value


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a random generator from a seed, a generator, or None for fresh randomness."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(random_state)
    raise TypeError(
        f"random_state must be None, a whole number not below 0, or a numpy.random.Generator, "
        f"but it is {random_state!r}."
    )


def _real(value: Any, name: str) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, but it is {value!r}.")
    return float(value)


def check_width(width: Any, name: str) -> float | Floats:
    """Return a width above 0, or an array of them."""
    if np.ndim(width) == 0:
        return positive(width, name)
    widths = as_floats(width, name)
    if widths.ndim != 1 or not (np.isfinite(widths) & (widths > 0)).all():
        raise ValueError(
            f"{name} must be a finite number above 0, or one for each representative state, but it is {width!r}."
        )
    return widths.copy()


def check_norm(norm: Any) -> float:
    """Return p of a Minkowski norm: a number from 1 to 16, or infinity."""
    number = np.inf if isinstance(norm, (float, np.floating)) and norm == np.inf else positive(norm, "norm")
    if not (1 <= number <= LARGEST_NORM or number == np.inf):
        raise ValueError(
            f"norm must be a number from 1 to {LARGEST_NORM:g}, or infinity, but it is {norm!r}. Below 1 it is not a "
            f"norm; above {LARGEST_NORM:g}, powers of small distances underflow, and infinity is nearly the same."
        )
    return number


def check_profile(profile: Any) -> None:
    """Refuse a profile that is unknown, or a function that is not a kernel's."""
    if not callable(profile):
        one_of(profile, PROFILES, "profile")
        return
    z = np.linspace(0.0, 50.0, 501)
    values = profile_values(profile, z)
    if values.shape != z.shape or not np.isfinite(values).all() or values.min() < 0 or values[0] <= 0:
        raise ValueError(
            f"profile must map an array of z >= 0 to finite numbers of the same shape, none below 0 and above 0 at "
            f"z = 0, but {profile!r} does not."
        )
    if (np.diff(values) > 1e-12 * values[0]).any():
        raise ValueError(f"profile must never rise with z, but {profile!r} does. Similarity has to fall with distance.")


def profile_values(profile: Any, z: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):  # z may be FARTHEST, and its powers infinite
        return np.asarray(profile(z), dtype=np.float64)
