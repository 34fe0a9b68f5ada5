"""From the arguments of a command to a simulator and a policy that acts in it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kbrl.cli.console import some
from kbrl.cli.opening import variables

if TYPE_CHECKING:
    from kbrl.arrays import Array, Floats, Integers
    from kbrl.storage.model_file import SavedModel
    from kbrl.tasks import Task
    from kbrl.trials.policies import Policy

env_option = click.option(
    "--env", metavar="ID", help="Gymnasium environment instead of a task, for example CartPole-v1."
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Option of the task, for example --set n_poles=2."
)


def complete_task(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tasks that a word on the command line may become."""
    from kbrl.tasks import TASKS

    return [name for name in TASKS if name.lower().startswith(incomplete.lower())]


@contextmanager
def simulator_of(
    task: str | None, env: str | None, settings: tuple[str, ...], *, discount: float = 0.99
) -> Iterator[Task]:
    """Yield the task of this name, or of this Gymnasium environment with a discount, with its options set."""
    if (task is None) == (env is None):
        raise click.UsageError("Name either a task, or a Gymnasium environment by --env ID.")
    options = dict(_setting(text) for text in settings)
    if task is not None:
        yield _make_task(task, options)
        return
    from kbrl.tasks import from_gymnasium

    environment = _make_environment(str(env), options)
    try:
        yield from_gymnasium(environment, discount=discount)
    finally:
        environment.close()


def _setting(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; a value is a JSON number, list, true or false, or else a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--set takes NAME=VALUE, but it got {text!r}.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _make_task(task: str, options: dict[str, Any]) -> Task:
    from kbrl.tasks import TASKS

    names = {name.lower(): name for name in TASKS}
    if task.lower() not in names:
        raise click.UsageError(f"There is no task {task!r}. The tasks are {', '.join(TASKS)}.")
    kind = TASKS[names[task.lower()]]
    known = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise click.UsageError(f"{kind.name} has no option {', '.join(unknown)}. Its options are {', '.join(known)}.")
    try:
        return kind(**options)
    except (ValueError, TypeError) as error:
        if "recordings" in options:  # files may be at fault
            raise
        raise click.UsageError(f"--set does not suit {kind.name}: {error}") from None


def _make_environment(name: str, options: dict[str, Any]) -> Any:
    try:
        import gymnasium
    except ImportError:
        from kbrl.checks import how_to_install

        raise click.UsageError(f"--env needs Gymnasium. {how_to_install('gym')}") from None
    import kbrl.tasks  # noqa: F401  (registers the tasks of kbrl)

    try:
        return gymnasium.make(name, **options)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        raise click.UsageError(f"The environment {name!r} cannot be made: {error}") from None


def random_moves(simulator: Task, rng: Any) -> Policy:
    """Return the policy of uniformly random moves."""
    from kbrl.trials.policies import UniformRandom

    return UniformRandom(range(len(simulator.actions)), rng)


def counted(policy: Policy, count: Callable[[int], None]) -> Policy:
    """Return the same policy, which reports how many decisions it has made."""

    def counting(observations: Floats) -> Array:
        count(len(observations))
        return policy(observations)

    return counting


def model_policy(simulator: Task, saved: SavedModel) -> Policy:
    """Return the policy of a model in a simulator with the same actions and state variables."""
    from kbrl.mdp.dynamic_programming import best_actions

    model, order = saved.model, _order(simulator, saved)
    places = _places(model.action_labels, simulator)

    def policy(observations: Floats) -> Integers:
        q = model.q_values(observations[:, order])
        return places[best_actions(q, where_none=None)]

    return policy


def _order(simulator: Task, saved: SavedModel) -> list[int]:
    """Return where the simulator observes the model's variables: by their names, or in the same order."""
    names, n_dims = list(simulator.observation_names), saved.model.coordinates.n_dims
    if n_dims != len(simulator.low):
        raise ValueError(
            f"The model has {n_dims} state variables, but {simulator.name} observes {len(simulator.low)}: "
            f"{', '.join(names)}. Use a model of this task, with the same --set options."
        )
    known = variables(saved)
    return [names.index(name) for name in known] if sorted(known) == sorted(names) else [*range(n_dims)]


def _places(labels: Array, simulator: Task) -> Integers:
    """Return the place of each label among the actions of the simulator: by name, or else as a place already."""
    import numpy as np

    from kbrl.trials.policies import action_indices

    words = [str(label) for label in labels.tolist()]
    if set(words) <= set(simulator.actions):
        return np.array([simulator.actions.index(word) for word in words], dtype=np.intp)
    try:
        return action_indices(labels, len(labels), simulator.actions)
    except ValueError:
        raise ValueError(
            f"The model knows the actions {some(words)}, but {simulator.name} has {some(simulator.actions)}. "
            f"Use a model of this task, or label actions by these names or by their places from 0."
        ) from None
