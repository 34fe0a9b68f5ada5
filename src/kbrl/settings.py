"""The settings of KBSF, each stated once: its default, what it may be, what it means, and its option of the command.

Everything else is derived from here: the signature and the checks of `KBSF`, the options of ``kbrl fit``, the keys of
TOML files and model files, and the table in the report.  Settings that few people change are in four groups: `Plan`,
`Growth`, `Variant` and `Solver`; files and the command have flat names for these settings.
This module loads nothing heavy, so that ``kbrl fit --help`` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from dataclasses import field as _field
from functools import wraps
from typing import Any, TypeVar

from kbrl.mdp.solvers import SOLVERS
from kbrl.profiles import PROFILES

WAYS = ("k-means", "random", "grid", "farthest", "cover", "mixture", "spread")
SCALINGS = ("std", "range")
TERMINALS = ("absorb", "continue")
AGGREGATIONS = ("soft", "hard")
NEIGHBORHOODS = ("exact", "per_chunk")
Q_FUNCTIONS = ("reps", "samples")
ACTINGS = ("ahead", "reps")
_LONGEST_WINDOW = 10_000  # steps
FEW_CASES = 5  # an action with fewer cases, around a state or in total, has little support

# What a setting may be.
COUNT, POSITIVE, FRACTION, CHOICE, NUMBER, OTHER = "count", "positive", "fraction", "choice", "number", "other"
GROUP, ORDER = "group", "order"

G = TypeVar("G", bound="Group")
S = TypeVar("S")


@dataclass(frozen=True)
class About:
    """The facts about a setting besides its name and its default."""

    kind: str  # COUNT, POSITIVE, FRACTION (from 0 up to 1, without 1), CHOICE, NUMBER, OTHER or GROUP
    help: str
    option: str | None = None  # of the command, without the dashes; None: it has none
    choices: tuple[str, ...] = ()
    optional: bool = False  # may also be None
    option_default: Any = ...  # where the command has another default
    option_kind: str | None = None  # where the option takes less than the setting
    flat: str | None = None  # its name in files, where it is not that of the field
    none_means: Any = ...  # the value that None stands for in a fit, if it is one


def _setting(default: Any, kind: str, text: str, option: str | None = None, **more: Any) -> Any:
    return _field(default=default, metadata={"about": About(kind, text, option, **more)})


class Group:
    """Settings that belong together: a record that never changes, with scikit-learn's habits for nested objects."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]

    def set_params(self: G, **changes: Any) -> G:
        """Return a group with some fields changed; this one stays as it is."""
        return replace(self, **_known_fields(type(self), changes))  # type: ignore[type-var]

    def __repr__(self) -> str:
        defaults = type(self)().get_params()
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"


@dataclass(frozen=True, repr=False)
class Growth(Group):
    """How representative states are added as data arrive, and how many there may be.

    {settings}

    >>> from kbrl import KBSF, Growth
    >>> learner = KBSF(n_reps=50, growth=Growth(distance=0.3))
    >>> learner.set_params(growth__max_reps=200)
    KBSF(n_reps=50, growth=Growth(distance=0.3, max_reps=200))
    """

    distance: float | None = _setting(
        None, POSITIVE, "Next states farther than this from all representative states are added.", "grow-distance",
        optional=True, flat="grow_distance",
    )  # fmt: skip
    below: float | None = _setting(
        None, FRACTION, "Next states where all kernels are below this (0.01 in the paper) are added.", "grow-below",
        optional=True, flat="grow_below",
    )  # fmt: skip
    max_reps: int | None = _setting(
        None, COUNT, "Largest number of representative states, for growth and covers.", "max-reps", optional=True
    )
    cover_distance: float | None = _setting(
        None, POSITIVE, 'For reps="cover": how far apart representative states are.', "cover-distance", optional=True
    )

    @property
    def is_wanted(self) -> bool:
        """Whether representative states are to be added."""
        return self.distance is not None or self.below is not None


@dataclass(frozen=True, repr=False)
class Variant(Group):
    """Which variant of the paper's method it is.

    {settings}

    >>> from kbrl import KBSF, Variant
    >>> KBSF(variant=Variant(q_function="samples", terminals="continue")).variant.aggregation
    'soft'
    """

    profile: Any = _setting(
        "exponential", OTHER, "How kernels fall with distance: a name, or a function of an array of z.", "profile",
        choices=tuple(PROFILES), option_kind=CHOICE,
    )  # fmt: skip
    norm: float = _setting(2.0, NUMBER, "How distances are measured: 1 to 16 or inf; 2 is Euclidean.", "norm")
    terminals: str = _setting(
        "absorb",
        CHOICE,
        "Whether episodes end where the data say so (absorb), or continue.",
        "terminals",
        choices=TERMINALS,
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


@dataclass(frozen=True, repr=False)
class Solver(Group):
    """How the reduced model is solved.

    {settings}

    >>> from kbrl import KBSF, Solver
    >>> KBSF(solver=Solver(method="policy iteration", tolerance=1e-6)).solver.sweeps is None
    True
    """

    method: str = _setting(
        "auto", CHOICE, "How the model is solved.", "solver", choices=("auto", *SOLVERS), flat="solver"
    )
    tolerance: float = _setting(1e-8, POSITIVE, "How accurately the model is solved.", "tolerance")
    sweeps: int | None = _setting(
        None, COUNT, "Apply the Bellman operator this many times instead of solving the model.", "sweeps", optional=True
    )


@dataclass(frozen=True, repr=False)
class Plan(Group):
    """The plans of order 1: short sequences of decisions, each held for some steps, by which answers look ahead.

    {settings}

    >>> from kbrl import KBSF, Plan
    >>> learner = KBSF(order=1, plan=Plan(decisions=3, hold=4))  # eight plans of twelve steps, for two actions
    >>> learner.plan.acting
    'ahead'
    """

    decisions: int | None = _setting(
        None, COUNT, "Decisions of a plan; None: three, two or one, so that there are at most 64 plans.",
        "plan-decisions",
        optional=True, flat="plan_decisions",
    )  # fmt: skip
    hold: int | None = _setting(
        None, COUNT, "Steps for which each decision is held; None: 4, or 1 for plans of one decision.", "plan-hold",
        optional=True, flat="plan_hold",
    )  # fmt: skip
    acting: str = _setting(
        "ahead", CHOICE, "Whether answers look ahead from the state itself, or come from representative states.",
        "acting", choices=ACTINGS,
    )  # fmt: skip
    inside: float | None = _setting(
        2.0, POSITIVE, "How far from the data a plan may end, in typical distances of logged states; None: anywhere.",
        "inside", optional=True,
    )  # fmt: skip
    usual: float | None = _setting(
        None, FRACTION, "Begin plans only with actions taken nearby at least this fraction as often as the usual one.",
        "usual", optional=True,
    )  # fmt: skip
    window: int | None = _setting(
        None, COUNT, "Regress what follows an action over this many steps directly, for delayed effects.",
        "plan-window", optional=True, flat="plan_window",
    )  # fmt: skip


def _with_hints(settings: type[S]) -> type[S]:
    """Make a class of settings refuse a name that is now in a group, and tell what to write instead."""
    make = settings.__init__

    @wraps(make)
    def init(self: Any, *given: Any, **named: Any) -> None:
        instead = in_groups(named)
        if instead:
            raise TypeError(f"{type(self).__name__} has no parameter {instead}")
        if isinstance(named.get("solver"), str):  # as a flat name, it was the method
            _as_group("solver", named["solver"])  # raises
        make(self, *given, **named)

    settings.__init__ = init  # type: ignore[method-assign]
    return settings


@_with_hints
@dataclass(eq=False, repr=False)
class Settings:
    """The settings of KBSF; a fit keeps its own copy, which never changes."""

    n_reps: int = _setting(100, COUNT, "Number of representative states, m.", "reps", option_default=None)
    reps: Any = _setting(
        "k-means", OTHER, "How they are chosen among the next states; or an array, one row per representative state.",
        "choose-reps", choices=WAYS, option_kind=CHOICE, option_default=None,
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
        None, COUNT, "Only this many nearest samples count (the paper's mu).", "sample-neighbors", optional=True
    )
    rep_neighbors: int | None = _setting(
        None, COUNT, "Only this many representative states count (mu-bar): those with the largest kernel values.",
        "rep-neighbors", optional=True,
    )  # fmt: skip
    discount: float = _setting(0.99, FRACTION, "What a reward is worth one step later.", "discount")
    scaling: Any = _setting(
        "std", OTHER, 'What each state variable is divided by: "std", "range", None or one number per variable.',
        "scaling", choices=(*SCALINGS, "none"), option_kind=CHOICE,
    )  # fmt: skip
    random_state: Any = _setting(
        None, OTHER, "Seed or generator of all random choices.", "seed", option_kind=COUNT, option_default=0
    )
    min_cases: int | None = _setting(
        None, COUNT, "Actions that were taken fewer times than this in total are left out; None: 5 for fit, 1 for "
        "learning that starts with partial_fit.", "min-cases", optional=True, option_default=FEW_CASES,
        none_means=FEW_CASES,
    )  # fmt: skip
    order: int = _setting(
        0, ORDER, "0: averages around representative states, the paper's method. 1: lines, and plans.", "order",
        option_default=None,
    )  # fmt: skip
    plan: Plan = _setting(Plan(), GROUP, "The plans of order 1: Plan({fields}).")
    growth: Growth = _setting(Growth(), GROUP, "How representative states are added: Growth({fields}).")
    variant: Variant = _setting(Variant(), GROUP, "The variant of the method: Variant({fields}).")
    solver: Solver = _setting(Solver(), GROUP, "How the model is solved: Solver({fields}).")
    n_jobs: int | None = _setting(
        None, COUNT, "Number of threads; None: one per core. Results do not depend on it.", optional=True
    )


@dataclass(frozen=True)
class Setting:
    """One setting: where it is, and the facts about it."""

    group: str | None  # the parameter of KBSF that holds it; None: it is a parameter itself
    field: str
    default: Any
    about: About

    @property
    def path(self) -> str:
        """Its name as Python has it, such as growth.distance."""
        return self.field if self.group is None else f"{self.group}.{self.field}"

    def of(self, settings: Any) -> Any:
        """Return its value in some settings."""
        return getattr(settings if self.group is None else getattr(settings, self.group), self.field)


def _fields_of(kind: type[Any], group: str | None = None) -> list[Setting]:
    return [Setting(group, each.name, each.default, each.metadata["about"]) for each in fields(kind)]


def about_settings() -> dict[str, Setting]:
    """Return all settings by their flat names, those of the groups in the place of the group."""
    found: list[Setting] = []
    for each in _fields_of(Settings):
        is_group = each.about.kind == GROUP
        found += _fields_of(type(each.default), each.field) if is_group else [each]
    return {each.about.flat or each.field: each for each in found}


_ABOUT = about_settings()
_GROUPS: dict[str, type[Group]] = {
    each.field: type(each.default) for each in _fields_of(Settings) if each.about.kind == GROUP
}


def checked(given: Settings, *, min_cases: int | None = None) -> Settings:
    """Return the settings of a learner, or raise an error that names a bad one; dicts become groups.

    ``min_cases`` is how often an action must have been taken to be recommended, where the learner does not say.
    """
    settings = Settings(**with_groups({each.name: getattr(given, each.name) for each in fields(Settings)}))
    check_settings(settings)
    return replace(settings, min_cases=min_cases) if settings.min_cases is None else settings


def check_settings(settings: Settings) -> None:
    """Refuse settings of the wrong kind, and settings that cannot be combined."""
    from kbrl import checks  # which loads NumPy

    _check_order(settings)
    _check_growth(settings)
    by_kind = {COUNT: checks.whole, POSITIVE: checks.positive, FRACTION: checks.in_unit_interval}
    for each in _ABOUT.values():
        value, about = each.of(settings), each.about
        if value is None and about.optional:
            continue
        if about.kind == CHOICE:
            checks.one_of(value, about.choices, each.path)
        elif about.kind in by_kind:
            by_kind[about.kind](value, each.path)
    for name, choices in (("reps", WAYS), ("scaling", SCALINGS)):
        if isinstance(getattr(settings, name), str):
            checks.one_of(getattr(settings, name), choices, name)
    _check_window(settings)
    checks.check_width(settings.rep_width, "rep_width")
    checks.check_norm(settings.variant.norm)
    checks.check_profile(settings.variant.profile)
    if isinstance(settings.random_state, (bool, int, float, str)):
        checks.as_generator(settings.random_state)


def _check_growth(settings: Settings) -> None:
    if settings.growth.distance is not None and settings.growth.below is not None:
        raise ValueError("Growth takes growth.distance or growth.below, but not both.")
    if settings.growth.is_wanted and hasattr(settings.rep_width, "__len__"):
        raise ValueError("A model with one width per representative state cannot grow: new ones have no width.")


def _check_order(settings: Settings) -> None:
    """Refuse what models of order 1 cannot do."""
    if isinstance(settings.order, bool) or settings.order not in (0, 1):
        raise ValueError(f"order must be 0 (averages) or 1 (lines and plans), but it is {settings.order!r}.")
    if settings.order == 0:
        return
    fixed = {"norm": 2, "aggregation": "soft", "q_function": "reps", "neighborhoods": "exact"}
    wrong = {name: value for name in fixed if (value := getattr(settings.variant, name)) != fixed[name]}
    if wrong:
        listing = ", ".join(f"variant.{name}={value!r}" for name, value in wrong.items())
        raise ValueError(f"order=1 has none of the variants of order 0, but it was given {listing}. Use order=0.")
    if settings.growth.below is not None:
        raise ValueError("order=1 has no kernel to grow by: use growth.distance instead of growth.below.")


def _check_window(settings: Settings) -> None:
    """Refuse what models of windows cannot do."""
    plan = settings.plan
    if plan.window is None:
        return
    if plan.window > _LONGEST_WINDOW:
        raise ValueError(f"plan.window may have at most {_LONGEST_WINDOW:,} steps, but it is {plan.window!r}.")
    if settings.order == 0:
        raise ValueError(f"plan.window={plan.window} is for lines: it needs order=1 (--order 1), but order is 0.")
    if plan.decisions not in (None, 1) or plan.hold not in (None, 1):
        raise ValueError(
            f"plan.window={plan.window} has plans of one decision, after which people decide, but plan.decisions is "
            f"{plan.decisions} and plan.hold is {plan.hold}. Leave them out, or leave out plan.window."
        )


def cases_needed(min_cases: int | None) -> int:
    """Return how often an action must have been taken for a fit to recommend it; ``FEW_CASES`` if nothing is given."""
    return FEW_CASES if min_cases is None else min_cases


def flattened(settings: Settings) -> dict[str, Any]:
    """Return the values of all settings by their flat names, as files have them."""
    return {name: each.of(settings) for name, each in _ABOUT.items()}


def grouped(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of KBSF for values by their flat names; what is not given has its default."""
    params: dict[str, Any] = {}
    for name, value in flat.items():
        each = _ABOUT[name]
        if each.group is None:
            params[each.field] = value
        else:
            params[each.group] = params.get(each.group, _GROUPS[each.group]()).set_params(**{each.field: value})
    return params


def with_groups(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of KBSF where dicts have become groups; refuse what is neither."""
    return {name: _as_group(name, value) if name in _GROUPS else value for name, value in params.items()}


def _as_group(name: str, value: Any) -> Group:
    kind = _GROUPS[name]
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping):
        return kind(**_known_fields(kind, value))
    instead = f" Write {_written({name: value})}." if name in _ABOUT else ""  # a flat name, too
    raise TypeError(f"{name} must be a {kind.__name__}, or a dict of its fields, but it is {value!r}.{instead}")


def _known_fields(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    names = [each.name for each in fields(kind)]
    unknown = [str(name) for name in given if name not in names]
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}; it has {', '.join(names)}.")
    return dict(given)


def in_groups(params: Mapping[str, Any]) -> str:
    """Return which of these are flat names of settings in groups, and what to write instead; "" if none is."""
    front = {each.name for each in fields(Settings)}
    flat = {name: value for name, value in params.items() if name in _ABOUT and name not in front}
    return f"{', '.join(flat)}; write {_written(flat)}." if flat else ""


def _written(flat: Mapping[str, Any]) -> str:
    """Return, as Python code, how values by their flat names are given to KBSF."""
    parts: dict[str, list[str]] = {}
    for name, value in flat.items():
        parts.setdefault(str(_ABOUT[name].group), []).append(f"{_ABOUT[name].field}={value!r}")
    return ", ".join(f"{group}={_GROUPS[group].__name__}({', '.join(given)})" for group, given in parts.items())


def described(kind: type[Any] = Settings) -> str:
    """Return the meaning of each setting, one line per setting, for a docstring."""
    lines = []
    for each in _fields_of(kind):
        names = ", ".join(found.field for found in _fields_of(type(each.default))) if each.about.kind == GROUP else ""
        lines.append(f"    {each.field}: {each.about.help.replace('{fields}', names)}")
    return "\n".join(lines)


for _kind in _GROUPS.values():
    _kind.__doc__ = (_kind.__doc__ or "").replace("    {settings}", described(_kind))
