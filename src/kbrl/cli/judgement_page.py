"""A judgement as one page for a browser: the verdict, three bars, what could be wrong.  It loads nothing."""

from __future__ import annotations

from html import escape

from kbrl.trust.judgement import Interval, Judgement

_STYLE = """body{font:16px/1.5 sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}.verdict{font-size:1.3rem}
.wide{overflow-x:auto}@media(max-width:30rem){svg text{font-size:22px}}"""
_LEGEND = (
    "Now is what an episode earns under current practice, value what it would earn under the policy, and gain the "
    "difference, all discounted. Low and high are the ends of an interval. Its half width has three parts: other "
    "episodes might have been logged (sampling), the estimate depends on how much the method smooths (smoothing), and "
    "the method does not quite reproduce what was observed (self-check)."
)
_COLORS = {"sampling": "#3b6ea5", "smoothing": "#c8873c", "self_check": "#8a5aa5"}
_WIDTH = 600.0


def page_of(found: Judgement, n_episodes: int) -> str:
    """Return the page as HTML."""
    rows = "".join(_row(name, getattr(found, name)) for name in ("now", "value", "gain"))
    rows += "".join(_row(f"gain by {name} alone", method.gain) for name, method in found.methods.items())
    lists = [("Why there is no verdict", _sentences(found.refusals))]
    lists.append(("What could be wrong", _sentences(found.warnings)))
    influences = [f"{each.episode}: {each.change:+.4g}" for each in found.influential(n_episodes)]
    lists.append(("Episodes without which the gain would change most", tuple(influences)))
    sections = "".join(f"<h2>{title}</h2><ul>{_items(items)}</ul>" for title, items in lists if items)
    about = f"{found.n_episodes} episodes, {found.n_rows:,} rows; discount {found.discount:g}; "
    about += f"observed mean return {found.observed:.5g}; level {100 * found.level:g} %."
    about += f" Not rehearsed as a second estimate: {found.not_rehearsed}." if found.not_rehearsed else ""
    heads = "".join(f"<th>{head}</th>" for head in ("", "estimate", "low", "high"))
    heads += "".join(f"<th style='border-top:5px solid {color}'>{_word(part)}</th>" for part, color in _COLORS.items())
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Better or not</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head><body>"
        f"<h1>Better or not?</h1><p class='verdict'>{escape(found.sentence)}</p>{_bars(found)}"
        f"<div class='wide'><table><tr>{heads}</tr>{rows}</table></div><p>{_LEGEND}</p>"
        f"<p>{escape(about)}</p>{sections}</body></html>\n"
    )


def _word(name: str) -> str:
    return name.replace("_", "-")


def _sentences(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text[:1].upper() + text[1:] for text in texts)


def _items(items: tuple[str, ...]) -> str:
    return "".join(f"<li>{escape(item)}</li>" for item in items)


def _row(name: str, found: Interval) -> str:
    numbers = (found.estimate, found.low, found.high, found.sampling, found.smoothing, found.self_check)
    return f"<tr><td>{name}</td>{''.join(f'<td>{number:.4g}</td>' for number in numbers)}</tr>"


def _bars(found: Judgement) -> str:
    """Return a picture of the three intervals; the parts of each half width have colours of their own."""
    shown = {name: getattr(found, name) for name in ("now", "value", "gain")}
    low = min(0.0, *(each.low for each in shown.values()))
    high = max(0.0, *(each.high for each in shown.values()))
    scale = (_WIDTH - 80) / ((high - low) or 1.0)

    def place(number: float) -> float:
        return 70 + (number - low) * scale

    parts = [f"<line x1='{place(0):.1f}' x2='{place(0):.1f}' y1='0' y2='110' stroke='#999'/>"]
    for number, (name, each) in enumerate(shown.items()):
        y, reach = 12 + 34 * number, 0.0
        parts.append(f"<text x='0' y='{y + 14}' font-size='14'>{name}</text>")
        span = f"x='{place(each.low):.1f}' width='{(each.high - each.low) * scale:.1f}' y='{y}' height='18'"
        parts.append(f"<rect {span} fill='none' stroke='#999' stroke-dasharray='4'/>")  # shows where it is not known
        for part, color in _COLORS.items():
            start, reach = reach, reach + getattr(each, part)
            for a, b in (
                (each.estimate + start, each.estimate + reach),
                (each.estimate - reach, each.estimate - start),
            ):
                left, right = (min(max(x, each.low), each.high) for x in (a, b))
                box = f"x='{place(left):.1f}' width='{(right - left) * scale:.1f}' y='{y}' height='18'"
                parts.append(f"<rect {box} fill='{color}'/>")
        parts.append(f"<circle cx='{place(each.estimate):.1f}' cy='{y + 9}' r='5' fill='#000'/>")
    words = ", ".join(f"{_word(part)} {color}" for part, color in _COLORS.items()) + ", dashed: not known"
    return f"<svg viewBox='0 0 {_WIDTH:g} 112' role='img' aria-label='{escape(words)}'>{''.join(parts)}</svg>"
