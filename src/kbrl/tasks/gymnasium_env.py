"""Any task as a Gymnasium environment of one episode at a time.

The dynamics are the task's own.  Importing this module needs Gymnasium; ``kbrl.tasks`` registers the
environments by name, so that it is imported by ``gymnasium.make("kbrl/PuddleWorld-v0")`` alone.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from kbrl.arrays import Array, Floats
from kbrl.checks import as_rows, how_to_install, whole
from kbrl.tasks import TASKS
from kbrl.tasks.task import Task


class TaskEnv(gymnasium.Env[Floats, np.int64]):
    """One state of a task; ``reset(options={"state": [...]})`` starts in a given full state.

    An episode is truncated after ``max_steps`` decisions, by default the task's time limit.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, task: Task, *, render_mode: str | None = None, max_steps: int | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', but it is {render_mode!r}.")
        self.task = task
        self.render_mode = render_mode
        self.max_steps = task.max_steps if max_steps is None else whole(max_steps, "max_steps")
        self.observation_space = gymnasium.spaces.Box(task.low, task.high, dtype=np.float64)
        self.action_space = gymnasium.spaces.Discrete(len(task.actions))
        self._state: Floats | None = None  # (1, n_dims), or None between episodes
        self._states: list[Floats] = []  # the episode up to now, where it is to be drawn
        self._actions: list[int] = []
        self._n_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start an episode; the seed decides its start and its noise."""
        super().reset(seed=seed)
        state = (options or {}).get("state")
        if state is None:
            self._state = self.task.reset(1, self.np_random)
        else:
            self._state = as_rows([state], "options['state']", n_dims=len(self.task.state_names))
        self._n_steps, self._states, self._actions = 0, [self._state[0]], []
        return self._observation(self._state), {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("The episode is over, or none has begun. Call reset() before step().")
        states, rewards, terminals = self.task.step(self._state, [action], self.np_random)
        self._n_steps += 1
        terminated = bool(terminals[0])
        truncated = not terminated and (self._n_steps >= self.max_steps or bool(self.task.truncates(states)[0]))
        self._state = None if terminated or truncated else states
        if self.render_mode is not None:
            self._states.append(states[0])
            self._actions.append(int(action))
        return self._observation(states), float(rewards[0]), terminated, truncated, {}

    def render(self) -> Array | None:
        """Return a picture of the episode up to now, (height, width, 3) bytes."""
        if self.render_mode is None:
            return None
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            message = f"Pictures need matplotlib. {how_to_install('plot')}"
            raise gymnasium.error.DependencyNotInstalled(message) from error
        if not self._states:
            raise gymnasium.error.ResetNeeded("There is no episode to draw. Call reset() before render().")
        canvas: Any = FigureCanvasAgg(Figure(figsize=(5, 5), dpi=100, layout="constrained"))
        axes = canvas.figure.add_subplot()
        axes.set_title(f"{self.task.name}, decision {self._n_steps}")
        self.task.draw(axes, np.array(self._states), np.array(self._actions, dtype=np.intp))
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _observation(self, states: Floats) -> Floats:
        return self.task.observe(states)[0].copy()


def make(task: str, render_mode: str | None = None, max_steps: int | None = None, **options: Any) -> TaskEnv:
    """Make the environment of a task by its name, with the task's own options."""
    return TaskEnv(TASKS[task](**options), render_mode=render_mode, max_steps=max_steps)
