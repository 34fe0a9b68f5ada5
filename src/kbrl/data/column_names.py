"""The usual names of columns: canonical names first, then those of other libraries.

Recognised: Gymnasium, Minari, D4RL, d3rlpy, RLlib and LeRobot.
"""

from __future__ import annotations

from collections.abc import Sequence

# The first name of each role is the canonical one.
ALIASES: dict[str, tuple[str, ...]] = {
    "episode": ("episode_id", "episode", "episodes", "episode_ids", "eps_id", "episode_index"),
    "step": ("step", "steps", "t", "timestep", "time_step", "frame_index"),
    "state": ("observation", "observations", "obs", "state", "states", "observation.state"),
    "action": ("action", "actions"),
    "reward": ("reward", "rewards", "next.reward"),
    "next_state": (
        "next_observation", "next_observations", "next_obs", "new_obs", "next_state", "next_states",
        "next.observation.state",
    ),
    "terminated": ("terminated", "terminateds", "termination", "terminations", "terminal", "terminals", "is_terminal"),
    "truncated": ("truncated", "truncateds", "truncation", "truncations", "timeout", "timeouts"),
    "done": ("done", "dones", "next.done"),
    "action_prob": ("action_prob", "action_probability", "propensity", "propensities"),
    "duration": ("step_duration",),  # a column called duration may be anything, such as that of a stay
}  # fmt: skip
PREFIXES: dict[str, tuple[str, ...]] = {
    "state": ("observation_", "observations_", "obs_", "state_"),
    "next_state": ("next_observation_", "next_observations_", "next_obs_", "new_obs_", "next_state_"),
}


def without_prefix(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of state variables without a common prefix such as observation_."""
    prefix = next((p for p in PREFIXES["state"] if all(name.lower().startswith(p) for name in names)), "")
    return tuple(name[len(prefix) :] for name in names)


def listing(names: Sequence[str]) -> str:
    """Return the names, quoted, for a message; at most a dozen of them."""
    shown = ", ".join(map(repr, names[:12]))
    return (shown or "no columns") + (f" and {len(names) - 12} more" if len(names) > 12 else "")
