"""What ``kbrl init`` proposes, as a record and as a TOML file in which every line has its reason."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Proposal:
    """What ``kbrl init`` proposes, in the words of options, with a reason for each, and what is unsure."""

    stated: dict[str, Any] = field(default_factory=dict)  # option: value
    reasons: dict[str, str] = field(default_factory=dict)  # option: why
    roles: dict[str, tuple[str, str]] = field(default_factory=dict)  # column: (role, why)
    doubts: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)  # lines of the file that are commented out

    def state(self, option: str, value: Any, why: str) -> None:
        """Propose the value of an option."""
        self.stated[option], self.reasons[option] = value, why

    def give(self, column: str, role: str, why: str) -> None:
        """Propose the role of one column."""
        self.roles[column] = (role, why)
        self.state(role, column, why)

    def to_toml(self, source: str) -> str:
        """Return the file: each option with its reason, and what is unsure."""
        lines = [f"# Proposed by kbrl init from {source}. Read it, correct it, then:", "#"]
        lines += [f"#   kbrl check {source} --config THIS", f"#   kbrl fit {source} --config THIS -o model.kbrl", ""]
        for option, value in self.stated.items():
            lines.append(f"# {self.reasons[option]}")
            lines.append(f"{option} = {as_toml(value)}")
        left = [f"#   {column}: {why}" for column, (role, why) in self.roles.items() if role == "left out"]
        lines += ["", "# Left out of the state:", *left] if left else []
        lines += ["", "# Unsure:", *(f"#   {doubt}" for doubt in self.doubts)] if self.doubts else []
        lines += ["", *self.hints] if self.hints else []
        return "\n".join(lines) + "\n"


def as_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def as_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{as_key(k)} = {as_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
