"""A policy learnt by kbrl, in one file that needs nothing but Python 3.9 or later.

    python policy.py age=61 pressure=158        prints one answer, as JSON
    python policy.py < states.jsonl             reads one JSON object per line, prints one answer per line
    python policy.py --serve 8000               answers POST requests on this machine, at port 8000

    from policy import decide
    decide({"age": 61, "pressure": 158})

An answer has the action, its value, and for every action its value (null: not available) and its support, about how
many logged cases there are around the state (null: not known).  A state that cannot be answered has the action null
and a reason.  `kbrl export` writes this file; its answers are those of `kbrl predict`, to rounding.
"""

from __future__ import annotations

import array
import base64
import json
import math
import sys
import zlib
from collections.abc import Callable
from typing import Any

from kbrl.serving.standalone_columns import LARGEST, UnanswerableError, decoded, encoded, holds, number_in
from kbrl.serving.standalone_plans import Plans

DATA = ""  # what was learnt, as JSON; `kbrl export` fills it in
TIE = 1e-12  # values that differ by less, relative to the largest in size, are equal but for rounding
FARTHEST = 1e150  # a distance in widths
TIED = 2.5e-13  # distances with a smaller relative difference are equal but for rounding
MOST_STATES, MOST_BYTES = 10_000, 10_000_000  # of one request


class Policy:
    """Answers from what was learnt: ``facts`` is the content of `DATA`."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = {**facts, **{name: _unpacked(*packed) for name, packed in facts["arrays"].items()}}
        self.plans = Plans(self.facts) if facts["plan"] else None
        self.widths_differ = len(set(self.facts["widths"])) > 1

    def decide(self, state: Any) -> dict[str, Any]:
        """Return the answer for one state: a dict of columns, or a list of numbers in the order of the variables."""
        try:
            return self._answer(self._scaled(self._variables(state)))
        except UnanswerableError as error:
            return {"action": None, "reason": str(error)}
        except RecursionError:
            return {"action": None, "reason": "it is nested too deep"}

    def _variables(self, state: Any) -> list[float]:
        columns, variables = self.facts["columns"], self.facts["variables"]
        if isinstance(state, dict):
            names = [column["name"] for column in columns]
            unknown = [name for name in state if name not in names]
            if unknown:
                raise UnanswerableError(f"there is no column {unknown[0]!r}; the columns are {', '.join(names)}")
            return [value for column in columns for value in encoded(column, state.get(column["name"]))]
        if not isinstance(state, (list, tuple)) or len(state) != len(variables):
            raise UnanswerableError(f"a state must be an object, or a list of {len(variables)} numbers")
        return [number_in(value, name) for value, name in zip(state, variables)]

    def _scaled(self, values: list[float]) -> list[float]:
        facts = self.facts
        scaled = [(value - c) / s for value, c, s in zip(values, facts["centre"], facts["scale"])]
        for value, name in zip(scaled, facts["variables"]):
            if not abs(value) <= LARGEST:
                raise UnanswerableError(f"{name} is too large")
        return scaled

    def _answer(self, state: list[float]) -> dict[str, Any]:
        facts, labels = self.facts, self.facts["labels"]
        weights = self._weights(state)
        support = self._support(state, weights)
        q = _mixed(facts["q"], weights) if self.plans is None else self.plans.q(state)
        q = self._restricted(q, support or [], weights)
        q = [value if is_allowed else -math.inf for value, is_allowed in zip(q, self._allowed(state))]
        best = _best(q)
        if q[best] == -math.inf:
            raise UnanswerableError("no action is allowed in this state, or none that is was taken near it")
        if support is not None and len(support) < len(q):
            support = [*support, sum(support)]  # of "as now": of all actions together
        each = [
            {"action": label, "value": None if value == -math.inf else value, "support": known}
            for label, value, known in zip(labels, q, [None] * len(q) if support is None else support)
        ]
        distance = min(math.dist(state, rep) for rep in facts["reps"])
        return {**each[best], "distance": distance, "actions": each}

    def _weights(self, state: list[float]) -> list[float]:
        """Return the share of each representative state in the answer."""
        facts, log_ratio = self.facts, LOG_RATIOS[self.facts["profile"]]
        ways = [_distance(state, rep, facts["norm"]) for rep in facts["reps"]]
        z = [min(way / width, FARTHEST) for way, width in zip(ways, facts["widths"])]
        nearest = min(z)
        weights = [math.exp(log_ratio(each, nearest)) for each in z]
        if facts["neighbors"]:
            by, tolerance = (z, 0.0) if self.widths_differ else (ways, TIED)
            kept = _nearest(by, facts["neighbors"], tolerance)
            weights = [weight if i in kept else 0.0 for i, weight in enumerate(weights)]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def _support(self, state: list[float], weights: list[float]) -> list[float] | None:
        """Return about how many logged cases of each action there are around a state; None if that is not known."""
        facts = self.facts
        if facts["reach"] is None:
            return None
        ways = [_distance(state, rep, facts["sample_norm"]) for rep in facts["reps"]]
        order = sorted(range(len(ways)), key=ways.__getitem__)
        reached, numbers = [], []
        for cases, near in zip(facts["cases"], facts["near"]):
            known = [i for i in order if near[i] < math.inf][: facts["near_reps"]]
            reached.append(min((ways[i] + near[i] for i in known), default=math.inf))
            mass = math.fsum(weight for weight, n in zip(weights, cases) if n)
            total = math.fsum(weight / n for weight, n in zip(weights, cases) if n)
            numbers.append(mass / total if total else 0.0)
        to_any, length = min(reached), facts["reach"] + 1e-12 * max(map(abs, state))
        return [
            number * min(_fade(to_any, length), _fade(far - to_any, facts["own_reach"])) if far < math.inf else 0.0
            for number, far in zip(numbers, reached)
        ]

    def _restricted(self, q: list[float], support: list[float], weights: list[float]) -> list[float]:
        """Return what a model that defers offers: only what has support, and gains something over "as now".

        Where answers come from representative states, most of their weight must prefer it.
        """
        least = self.facts["least"]
        if least is None:
            return q
        now, close = q[-1], 4 * TIE * _size(q)
        votes = [1.0] * len(q) if self.plans is not None else self._votes(weights)
        offered = [v if v > now + close and w > 0.5 else min(v, now - close) for v, w in zip(q[:-1], votes)]
        return [*(value if n >= least else -math.inf for value, n in zip(offered, support)), now]

    def _votes(self, weights: list[float]) -> list[float]:
        """Return the weight of the representative states that prefer each action to "as now"."""
        *actions, now = self.facts["q"]
        return [math.fsum(w for w, v, n in zip(weights, values, now) if v > n) for values in actions]

    def _allowed(self, state: list[float]) -> list[bool]:
        """Return whether each action is allowed, by the columns behind the state."""
        facts = self.facts
        if not facts["allowed"]:
            return [True] * len(facts["labels"])
        values = [value * s + c for value, s, c in zip(state, facts["scale"], facts["centre"])]
        cells, start = {}, 0
        for column in facts["columns"]:
            cells[column["name"]] = decoded(column, values[start : start + column["width"]])
            start += column["width"]
        rules = [facts["allowed"].get(str(label)) for label in facts["labels"]]
        return [rule is None or holds(rule, cells) for rule in rules]


LOG_RATIOS: dict[str, Callable[[float, float], float]] = {
    "exponential": lambda z, nearest: nearest - z,
    "gaussian": lambda z, nearest: 0.5 * (nearest - z) * (nearest + z),
    "uniform": lambda z, nearest: 0.0 if z <= max(1 + 1e-12, nearest) else -math.inf,
}


def _unpacked(shape: list[int], text: str) -> Any:
    """Return nested lists of numbers."""
    numbers = array.array("d")
    numbers.frombytes(zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        numbers.byteswap()
    nested: list[Any] = numbers.tolist()
    for size in reversed(shape[1:]):
        nested = [nested[k : k + size] for k in range(0, len(nested), size)]
    return nested


def _distance(one: list[float], other: list[float], norm: float | None) -> float:
    if norm == 2:
        return math.dist(one, other)
    gaps = [abs(a - b) for a, b in zip(one, other)]
    return max(gaps) if norm is None else float(sum(gap**norm for gap in gaps) ** (1 / norm))


def _nearest(ways: list[float], n: int, tolerance: float) -> set[int]:
    """Return the places of the n smallest distances; of those that are equal but for rounding, the first ones."""
    last = sorted(ways)[min(n, len(ways)) - 1]
    nearer = [place for place, way in enumerate(ways) if way < last * (1 - tolerance)]
    tied = [place for place, way in enumerate(ways) if last * (1 - tolerance) <= way <= last * (1 + tolerance)]
    return {*nearer, *tied[: n - len(nearer)]}


def _mixed(q: list[list[float]], weights: list[float]) -> list[float]:
    """Return one value per answer from those of the representative states; -inf where nothing is known."""
    values = []
    for of_answer in q:
        known = [(weight, value) for weight, value in zip(weights, of_answer) if value > -math.inf]
        mass = math.fsum(weight for weight, _ in known)
        values.append(math.fsum(weight * value for weight, value in known) / mass if mass > 0 else -math.inf)
    return values


def _size(q: list[float]) -> float:
    return max((abs(value) for value in q if value > -math.inf), default=0.0)


def _best(q: list[float]) -> int:
    """Return the place of the best action: the first of those that are equal but for rounding."""
    least = max(q) - TIE * _size(q)
    return next(place for place, value in enumerate(q) if value >= least)


def _fade(distance: float, length: float) -> float:
    return min(1.0, max(0.0, 2.0 - distance / length)) if length > 0 else float(distance <= 0)


# The ways to ask.


_opened: list[Policy] = []


def decide(state: Any) -> dict[str, Any]:
    """Return the answer for one state: a dict of columns, or a list of numbers in the order of the variables."""
    return _policy().decide(state)


def _policy() -> Policy:
    if not _opened:
        _opened.append(Policy(json.loads(DATA)))
    return _opened[0]


def about() -> dict[str, Any]:
    """Return what a request needs, the columns of a state, and the actions that answers may have."""
    facts = _policy().facts
    columns = [column["name"] for column in facts["columns"]]
    return {"post": "one state, or a list of states, as JSON", "columns": columns, "actions": facts["labels"]}


def reply(body: bytes) -> tuple[int, Any]:
    """Return the status and the answer to a request: one state, or a list of states, as JSON."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return 400, {"error": "a request must be one state, or a list of states, as JSON"}
    if not isinstance(asked, list) or not asked or not isinstance(asked[0], (dict, list)):
        return 200, decide(asked)
    if len(asked) > MOST_STATES:
        return 413, {"error": f"a request may have at most {MOST_STATES} states, but this one has {len(asked)}"}
    return 200, [decide(state) for state in asked]


def serve(port: int, host: str = "127.0.0.1") -> None:
    """Answer requests until stopped.  There is no encryption and no password: put it behind a server with both."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version, timeout = "HTTP/1.1", 60
        wbufsize = -1  # the head and the body of an answer leave together

        def do_POST(self) -> None:
            length, *others = self.headers.get_all("Content-Length", [""])
            is_stated = length.isdecimal() and len(length) < 20 and "Transfer-Encoding" not in self.headers
            is_stated = is_stated and not others  # a server before this one may take another of them
            if not is_stated or not 0 < int(length) <= MOST_BYTES:
                status, content = 413, {"error": f"a request must have a length, of at most {MOST_BYTES} bytes"}
            else:
                status, content = reply(self.rfile.read(int(length)))
            self._send(status, content)

        def do_GET(self) -> None:
            self._send(200, about())

        def _send(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 413:  # the rest of the request is not read
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Say nothing: requests hold people's data."""

    _policy()  # reads what was learnt before the first request comes
    server = ThreadingHTTPServer((host, port), Handler)
    print(f"answering at {host}, port {server.server_address[1]}", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


def main(arguments: list[str]) -> None:
    """Answer the state that is given by arguments, or those on standard input, or serve."""
    if len(arguments) == 2 and arguments[0] == "--serve" and arguments[1].isdigit():
        serve(int(arguments[1]))
    elif arguments and all("=" in argument for argument in arguments):
        pairs = (argument.partition("=") for argument in arguments)
        print(json.dumps(decide({name: value for name, _, value in pairs})))
    elif arguments:
        sys.exit(__doc__)
    else:
        for line in filter(bytes.strip, sys.stdin.buffer):
            print(json.dumps(reply(line)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
