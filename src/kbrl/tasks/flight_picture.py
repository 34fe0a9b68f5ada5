"""A picture of a helicopter's flight: its track from above, its attitude, and its altitude over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbrl.arrays import Floats

_TRACK, _TARGET, _CRAFT = "tab:orange", "tab:green", "tab:red"


def draw_flight(axes: Any, seconds: Floats, positions: Floats, quaternion: Floats) -> None:
    """Draw positions (n, 3) north, east and down, and the attitude (x, y, z, w) at the last of them."""
    axes.set_axis_off()
    roll, pitch, heading = _angles(quaternion)
    _draw_plan(axes.inset_axes([0.0, 0.42, 0.52, 0.52]), positions, heading)
    _draw_horizon(axes.inset_axes([0.6, 0.45, 0.4, 0.46]), roll, pitch)
    _draw_altitude(axes.inset_axes([0.0, 0.0, 1.0, 0.26]), seconds, -positions[:, 2])


def _draw_plan(panel: Any, positions: Floats, heading: float) -> None:
    north, east, _ = positions.T
    reach = _reach(positions[:, :2])
    nose = (east[-1] + 0.3 * reach * np.sin(heading), north[-1] + 0.3 * reach * np.cos(heading))
    panel.plot(east, north, color=_TRACK, linewidth=1.5)
    panel.plot(0.0, 0.0, "+", color=_TARGET, markersize=16, markeredgewidth=2.5)
    panel.annotate("", nose, (east[-1], north[-1]), arrowprops={"arrowstyle": "-|>", "lw": 2})
    panel.plot(east[-1], north[-1], "o", color=_CRAFT, markersize=8, markeredgecolor="black")
    panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="east, m", ylabel="north, m")
    panel.set_title("from above", fontsize="medium")


def _draw_altitude(panel: Any, seconds: Floats, altitude: Floats) -> None:
    reach = _reach(altitude)
    panel.axhline(0.0, color=_TARGET, linewidth=1.5)
    panel.plot(seconds, altitude, color=_TRACK, linewidth=1.5)
    panel.plot(seconds[-1], altitude[-1], "o", color=_CRAFT, markersize=8, markeredgecolor="black", clip_on=False)
    panel.set(xlim=(0.0, max(1.0, seconds[-1])), ylim=(-reach, reach), xlabel="time, s", ylabel="altitude, m")


def _draw_horizon(panel: Any, roll: float, pitch: float) -> None:
    """Draw what the pilot sees of sky and ground up to 45 degrees; no episode continues beyond the ring, 30 degrees."""
    from matplotlib.patches import Circle, Polygon

    along = np.array([np.cos(roll), np.sin(roll)])
    up = np.array([-along[1], along[0]])
    edges = ((-99, 0), (99, 0), (99, -199), (-99, -199))
    disc = Circle((0.0, 0.0), 45.0, facecolor="lightskyblue", edgecolor="black", linewidth=1.5)
    ground = Polygon([x * along + (y - np.degrees(pitch)) * up for x, y in edges], color="peru")
    panel.add_patch(disc)
    panel.add_patch(ground)
    ground.set_clip_path(disc)
    panel.add_patch(Circle((0.0, 0.0), 30.0, fill=False, linestyle="--"))
    panel.plot([-22, -8, 0, 8, 22], [0, 0, -6, 0, 0], color="black", linewidth=2.5)
    panel.set(xlim=(-48, 48), ylim=(-48, 48), aspect="equal")
    panel.set_axis_off()
    degrees = np.round(np.degrees([roll, pitch])) + 0.0  # no -0
    panel.set_title("roll {:.0f}°, pitch {:.0f}°".format(*degrees), fontsize="medium")


def _angles(quaternion: Floats) -> tuple[float, float, float]:
    """Return roll, pitch and heading in radians."""
    x, y, z, w = quaternion.tolist()
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1, 1))
    return float(roll), float(pitch), float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def _reach(values: Floats) -> float:
    return max(1.0, 1.3 * float(np.abs(values).max()))
