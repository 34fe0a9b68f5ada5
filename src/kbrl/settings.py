"""The settings of KBSF, each stated once: its default, what it may be, what it means, and its option of the command.

Everything else is derived from here: the signature and the checks of `KBSF`, the options of ``kbrl fit``, the keys of
TOML files, and the table in the report.  This module loads nothing heavy, so that ``kbrl fit --help`` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import field as _field
from typing import Any

from kbrl.mdp.solvers import SOLVERS
from kbrl.profiles import PROFILES

WAYS = ("k-means", "random", "grid", "farthest", "cover", "mixture")
SCALINGS = ("std", "range")
TERMINALS = ("absorb", "continue")
AGGREGATIONS = ("soft", "hard")
NEIGHBORHOODS = ("exact", "per_chunk")
Q_FUNCTIONS = ("reps", "samples")
FEW_CASES = 5  # an action with fewer cases, around a state or in all, has little support

# What a setting may be.
COUNT, POSITIVE, FRACTION, CHOICE, NUMBER, OTHER = "count", "positive", "fraction", "choice", "number", "other"


@dataclass(frozen=True)
class About:
    """The facts about a setting beside its name and its default."""

    kind: str  # COUNT, POSITIVE, FRACTION (from 0 up to 1, without 1), CHOICE, NUMBER or OTHER
    help: str
    option: str | None = None  # of the command, without the dashes; None: it has none
    choices: tuple[str, ...] = ()
    optional: bool = False  # may also be None
    option_default: Any = ...  # where the command has another default
    option_kind: str | None = None  # where the option takes less than the setting


def _setting(default: Any, kind: str, text: str, option: str | None = None, **more: Any) -> Any:
    return _field(default=default, metadata={"about": About(kind, text, option, **more)})


@dataclass(eq=False, repr=False)
class Settings:
    """The settings of KBSF; a fit keeps its own copy, which never changes."""

    n_reps: int = _setting(100, COUNT, "Number of representative states, m.", "reps", option_default=None)
    reps: Any = _setting(
        "k-means", OTHER, "How they are chosen among the next states; or an array, one row per representative state.",
        "choose-reps", choices=WAYS, option_kind=CHOICE,
    )  # fmt: skip
    sample_width: float = _setting(
        0.1, POSITIVE, "Width of the kernel around samples, tau, in units of the scaling.", "sample-width",
        option_default=None,
    )  # fmt: skip
    rep_width: Any = _setting(
        0.1, OTHER, "Width of the kernel around representative states, tau-bar; one number, or one per state.",
        "rep-width", option_kind=POSITIVE, option_default=None,
    )  # fmt: skip
    sample_neighbors: int | None = _setting(
        None, COUNT, "Only this many nearest samples count, mu.", "sample-neighbors", optional=True
    )
    rep_neighbors: int | None = _setting(
        None, COUNT, "Only this many representative states count, mu-bar: those with the largest kernel values.",
        "rep-neighbors", optional=True,
    )  # fmt: skip
    discount: float = _setting(0.99, FRACTION, "What a reward is worth one step later.", "discount")
    scaling: Any = _setting(
        "std", OTHER, 'What each state variable is divided by: "std", "range", None or one number per variable.',
        "scaling", choices=(*SCALINGS, "none"), option_kind=CHOICE,
    )  # fmt: skip
    random_state: Any = _setting(None, OTHER, "Decides all randomness.", "seed", option_kind=COUNT, option_default=0)
    profile: Any = _setting(
        "exponential", OTHER, "How kernels fall with distance: a name, or a function of an array of z.", "profile",
        choices=tuple(PROFILES), option_kind=CHOICE,
    )  # fmt: skip
    norm: float = _setting(2.0, NUMBER, "How distances are measured: 1 to 16 or inf; 2 is Euclidean.", "norm")
    cover_distance: float | None = _setting(
        None, POSITIVE, 'For reps="cover": how far apart representative states are.', "cover-distance", optional=True
    )
    grow_distance: float | None = _setting(
        None, POSITIVE, "Next states farther than this from all representative states become some.", "grow-distance",
        optional=True,
    )  # fmt: skip
    grow_below: float | None = _setting(
        None, FRACTION, "The same, where all kernels are below this value (0.01 in the paper).", "grow-below",
        optional=True,
    )  # fmt: skip
    max_reps: int | None = _setting(None, COUNT, "Where growth and covers stop.", "max-reps", optional=True)
    terminals: str = _setting(
        "absorb", CHOICE, "Whether episodes end where the data say so, or continue.", "terminals", choices=TERMINALS
    )
    aggregation: str = _setting(
        "soft", CHOICE, "Soft: KBSF. Hard: every state counts as its nearest representative state.", "aggregation",
        choices=AGGREGATIONS,
    )  # fmt: skip
    neighborhoods: str = _setting(
        "exact", CHOICE, "Whether the nearest samples are those of all data or of each chunk.", "neighborhoods",
        choices=NEIGHBORHOODS,
    )  # fmt: skip
    q_function: str = _setting(
        "reps", CHOICE, "Whether answers come from representative states, or from samples, which are then kept.",
        choices=Q_FUNCTIONS,
    )  # fmt: skip
    solver: str = _setting("auto", CHOICE, "How the model is solved.", "solver", choices=("auto", *SOLVERS))
    tolerance: float = _setting(1e-8, POSITIVE, "How exactly it is solved.", "tolerance")
    sweeps: int | None = _setting(
        None, COUNT, "Apply the Bellman operator this many times instead of solving the model.", "sweeps", optional=True
    )
    min_cases: int | None = _setting(
        None, COUNT, "Actions that were taken fewer times than this in all are left out; None: 1, with a warning.",
        "min-cases", optional=True, option_default=5,
    )  # fmt: skip
    n_jobs: int | None = _setting(
        None, COUNT, "Number of threads; None: one per core. Results do not depend on it.", optional=True
    )


def described() -> str:
    """Return the meaning of each setting, one line per setting, for a docstring."""
    return "\n".join(f"    {name}: {about.help}" for name, (_, about) in about_settings().items())


def about_settings() -> dict[str, tuple[Any, About]]:
    """Return the default of each setting and the facts about it, by name."""
    return {each.name: (each.default, each.metadata["about"]) for each in fields(Settings)}
