"""Simulators whose tables name nothing as kbrl does: pumps in German, an intensive care unit, fields, a tutor.

Each has a state, steps by numbers of actions, a log of random actions as its people would keep it, and the same log as
a clean table: the truth.
"""

from __future__ import annotations

import numpy as np
import pandas


class Pumps:
    """Pumps that shake more and more until they fail.  Grease helps a little and is cheap; a new part is dear."""

    actions, n_steps, state = ("weiter", "schmieren", "tauschen"), 25, ["Vibration", "Temp"]

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.rng = n, np.random.default_rng(seed)
        self.shake, self.heat = self.rng.uniform(1.0, 6.0, n), self.rng.normal(60.0, 5.0, n)

    def states(self) -> pandas.DataFrame:
        return pandas.DataFrame({"Vibration": self.shake.round(2), "Temp": self.heat.round(1)})

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Let a day pass; return rewards, ends, and the columns that tell them."""
        kept = np.choose(actions, [self.shake, 0.7 * self.shake, np.ones(self.n)])
        self.shake = kept + self.rng.gamma(2.0, 0.3, self.n)
        self.heat = self.rng.normal(60.0, 5.0, self.n)
        failed = self.rng.random(self.n) < 1 / (1 + np.exp(-2.0 * (self.shake - 6.0)))
        cost = np.choose(actions, [0.0, 120.0, 500.0]) + 3000.0 * failed
        return -cost, failed, {"Failed?": np.where(failed, "ja", "nein"), "Kosten": cost + 0.5}

    @staticmethod
    def write(log: pandas.DataFrame, path: str) -> None:
        """Write what a workshop keeps: semicolons, decimal commas, days first, umlauts in latin-1."""
        days = pandas.Timestamp("2023-01-25") + pandas.to_timedelta(log["step"], "D")
        table = log.assign(Pump=[f"P-{k:03d}" for k in log["episode"]], Datum=days.dt.strftime("%d.%m.%Y"), Ort="Köln")
        table = table.rename(columns={"action": "Massnahme"})
        names = ["Pump", "Datum", "Ort", "Vibration", "Temp", "Failed?", "Massnahme", "Kosten"]
        table[names].to_csv(path, sep=";", decimal=",", index=False, encoding="latin-1")


class Pressure:
    """Patients whose lactate rises where the pressure is too low or too high; they go home, or they die."""

    actions, n_steps, state = ("none", "low", "high"), 16, ["sex", "MAP", "lactate"]

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.rng = n, np.random.default_rng(seed)
        self.map, self.lactate = self.rng.normal(62.0, 10.0, n), 1.5 + self.rng.gamma(3.0, 0.8, n)
        self.sex = self.rng.choice(["F", "M"], n)

    def states(self) -> pandas.DataFrame:
        columns = {"sex": self.sex, "MAP": self.map.round(0), "lactate": self.lactate.round(1)}
        return pandas.DataFrame(columns)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Let four hours pass; return rewards, ends, and the column that tells them."""
        drift = np.choose(actions, [-4.0, 2.0, 10.0])
        self.map = self.map + drift + 0.1 * (66.0 - self.map) + self.rng.normal(0.0, 2.0, self.n)
        harm = np.where((self.map < 60.0) | (self.map > 80.0), 0.7, -0.5)
        self.lactate = np.clip(self.lactate + harm + self.rng.normal(0.0, 0.2, self.n), 0.5, 20.0)
        died, home = self.lactate > 7.0, self.lactate < 1.2
        outcome = np.where(died, "died", np.where(home, "discharged", ""))
        return home * 1.0 - died * 1.0, died | home, {"outcome": outcome}

    @staticmethod
    def write(log: pandas.DataFrame, path: str) -> None:
        """Write what a database gives: any order, holes, some rows twice, times as texts."""
        times = pandas.Timestamp("2150-01-01") + pandas.to_timedelta(4 * log["step"], "h")
        table = log.assign(hadm_id=20000 + log["episode"], charttime=times.dt.strftime("%Y-%m-%d %H:%M:%S"))
        rng = np.random.default_rng(5)
        table.loc[rng.random(len(table)) < 0.1, "lactate"] = np.nan
        table = pandas.concat([table, table[rng.random(len(table)) < 0.05]]).sample(frac=1.0, random_state=3)
        names = ["hadm_id", "charttime", "sex", "MAP", "lactate", "action", "outcome"]
        table[names].rename(columns={"action": "vasopressor"}).to_csv(path, index=False)


class Fields:
    """Fields that thrive at a middling moisture; water costs something, and tomorrow's rain is forecast."""

    actions, n_steps, state = ("OFF", "LOW", "ON"), 15, ["Moisture", "Rain"]

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.rng = n, np.random.default_rng(seed)
        self.moisture, self.rain = self.rng.uniform(20.0, 80.0, n), self.rng.exponential(4.0, n)

    def states(self) -> pandas.DataFrame:
        return pandas.DataFrame({"Moisture": self.moisture.round(1), "Rain": self.rain.round(1)})

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Let a day pass; return rewards, no ends, and the column that tells the rewards."""
        water = np.choose(actions, [0.0, 8.0, 20.0])
        self.moisture = np.clip(
            0.9 * self.moisture + water + self.rain + self.rng.normal(-4.0, 1.0, self.n), 0.0, 100.0
        )
        self.rain = self.rng.exponential(4.0, self.n)
        growth = 10.0 - 0.02 * (self.moisture - 50.0) ** 2 - np.choose(actions, [0.0, 0.5, 1.5])
        return growth.round(2), np.zeros(self.n, dtype=bool), {"Yield": growth.round(2)}

    @staticmethod
    def write(log: pandas.DataFrame, path: str) -> None:
        """Write what a logger gives: American dates, a unit in the cells, - for what is missing."""
        days = pandas.Timestamp("2022-04-20") + pandas.to_timedelta(log["step"], "D")
        table = log.assign(Field=[f"F{k:03d}" for k in log["episode"]], Date=days.dt.strftime("%m/%d/%Y"))
        table["Moisture"] = [f"{value} %" for value in log["Moisture"]]
        table["Rain"] = log["Rain"].map(str).mask(np.random.default_rng(5).random(len(log)) < 0.05, "-")
        names = ["Field", "Date", "Moisture", "Rain", "action", "Yield"]
        table[names].rename(columns={"action": "Irrigation"}).to_csv(path, index=False)


class Tutor:
    """Pupils who need examples first, then hints, then exercises; only the test at the end is a reward."""

    actions, n_steps, state = ("example", "hint", "exercise"), 10, ["mastery", "seconds"]

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.rng, self.day = n, np.random.default_rng(seed), 0
        self.mastery, self.pace = self.rng.uniform(0.05, 0.5, n), self.rng.normal(30.0, 6.0, n)

    def states(self) -> pandas.DataFrame:
        return pandas.DataFrame({"mastery": self.mastery.round(3), "seconds": self.pace.round(1)})

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Let a task be done; return rewards, ends, and the column that tells them at the end."""
        wanted = np.digitize(self.mastery, [0.35, 0.65])
        gain = np.where(actions == wanted, 0.1, np.where(np.abs(actions - wanted) == 1, 0.02, -0.05))
        self.mastery = np.clip(self.mastery + gain + self.rng.normal(0.0, 0.01, self.n), 0.0, 1.0)
        self.pace, self.day = self.rng.normal(30.0, 6.0, self.n), self.day + 1
        is_over = self.day == self.n_steps
        points = (100.0 * self.mastery).round(1) if is_over else np.zeros(self.n)
        return points, np.full(self.n, is_over), {"posttest": points if is_over else np.full(self.n, np.nan)}

    @staticmethod
    def write(log: pandas.DataFrame, path: str) -> None:
        """Write what a learning platform exports: the test stands on the last row of each pupil."""
        table = log.assign(student=[f"stu_{k:04d}" for k in log["episode"]], problem_nr=log["step"] + 1)
        names = ["student", "problem_nr", "mastery", "seconds", "action", "posttest"]
        table[names].rename(columns={"action": "tutor_move"}).to_csv(path, index=False)


def logged(domain: type, n: int, seed: int = 0) -> pandas.DataFrame:
    """Return the log of random actions: episode, step, state, action, reward, end, and what else the domain tells."""
    world, steps, present = domain(n, seed), [], np.ones(n, dtype=bool)
    for step in range(domain.n_steps):
        states, chosen = world.states(), world.rng.integers(0, 3, n)
        rewards, ended, told = world.step(chosen)
        labels = np.array(domain.actions)[chosen]
        known = {"episode": np.arange(n), "step": step, "action": labels, "reward": rewards, "end": ended, **told}
        steps.append(states.assign(**known)[present])
        present &= ~ended
    return pandas.concat(steps).sort_values(["episode", "step"], kind="stable").reset_index(drop=True)


def score(domain: type, predict, n: int = 1000, seed: int = 9) -> float:
    """Return the mean sum of rewards of a policy, a function from a frame of states to labels."""
    world, total, present = domain(n, seed), np.zeros(n), np.ones(n, dtype=bool)
    places = {label: place for place, label in enumerate(domain.actions)}
    for _ in range(domain.n_steps):
        labels = list(predict(world.states()))
        rewards, ended, _told = world.step(np.array([places[str(label)] for label in labels]))
        total += np.where(present, rewards, 0.0)
        present &= ~ended
    return float(total.mean())
