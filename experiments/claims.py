"""The paper's claims that an experiment can confirm or refute, and the table of what became of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.rule import RULE, Finding
from experiments.study import Verdict, not_run
from kbrl.files import written_beside


class Claim(NamedTuple):
    """One statement of the paper."""

    section: str
    text: str
    paper: str  # its figure
    figure: str  # the file that tests it


CLAIMS = {
    "PW1": Claim("4.3.1", "KBSF(8000, 100) performs like KBRL(8000)", "equal curves", "puddle"),
    "PW2": Claim("4.3.1", "KBSF improves with m, from 10 to 150", "rising curve", "puddle"),
    "PW3": Claim("4.3.1", "KBSF(8000, 100) needs far less work than KBRL(8000)", "99.58 % less", "puddle"),
    "PW4": Claim("4.3.1", "both improve with n", "rising curves", "puddle"),
    "PW5": Claim("4.3.1", "KBSF's time is linear in n, KBRL's grows with n^2 n_hat", "slopes 1 and over 2", "puddle"),
    "PW6": Claim(
        "6.2", "KBRL(8000) over the widths 1, 0.1, 0.01", "1.47 +- 0.42, 3.01 +- 0.08, 3.00 +- 0.08", "puddle"
    ),
    "PO1": Claim("4.3.2", "KBSF balances one pole with m = 30", "about 90 %", "poles"),
    "PO2": Claim("4.3.2", "LSPI on one pole, same data and features", "at most 60 %", "poles"),
    "PO3": Claim("4.3.2", "KBSF(10^6, 200) balances two poles", "over 80 %", "poles"),
    "PO4": Claim(
        "4.3.2", "KBSF(10^6, 200) takes minutes where KBRL would take months", "under 7 min; over 6 months", "poles"
    ),
    "PO5": Claim("4.3.2", "KBSF is faster than LSPI at equal m", "faster", "poles"),
    "HI1": Claim("4.3.3", "FQIT improves as eta_min falls: 200, 100, 50", "improves", "hiv"),
    "HI2": Claim("4.3.3", "m has little effect on KBSF; one KBSF does not reach FQIT(50)", "below FQIT(50)", "hiv"),
    "HI3": Claim("4.3.3", "KBSF(10000) is faster than FQIT(100) and FQIT(50)", "15 and 20 times", "hiv"),
    "HI4": Claim("4.3.3", "a committee of 5 matches FQIT(50), one of 15 clearly exceeds it", "exceeds", "hiv"),
    "HI5": Claim("4.3.3", "a committee of 30 is still faster than FQIT(200)", "faster", "hiv"),
    "EP1": Claim("4.3.4", "KBSF and FQIT(20) find policies better than 1 Hz", "better", "epilepsy"),
    "EP2": Claim("4.3.4", "LSPI and FQIT(200) are no advance over fixed frequencies", "no advance", "epilepsy"),
    "EP3": Claim("4.3.4", "KBSF is much faster than FQIT(20)", "at least 100 times", "epilepsy"),
    "IN1": Claim("5.2.1", "the final policy is the same for every t_m = t_v", "the same", "incremental"),
    "IN2": Claim("5.2.1", "splitting the data costs only a small overhead", "small", "incremental"),
    "TP1": Claim("5.2.2", "iKBSF with 10^7 transitions balances three poles", "about 80 %", "triple_pole"),
    "TP2": Claim("5.2.2", "batch KBSF and FQIT with 10^6 transitions", "below 55 %", "triple_pole"),
    "TP3": Claim(
        "5.2.2", "iKBSF on 10^7 is faster than FQIT(1000) on 10^6 transitions", "20 against 78 min", "triple_pole"
    ),
    "TP4": Claim("5.2.2", "iKBSF's memory against batch KBSF's", "under 0.03 GB, about 2 GB", "triple_pole"),
    "TP5": Claim(
        "5.2.2",
        "with 10 batches FQIT(10000) gets worse, FQIT(1000) better, still under iKBSF",
        "worse, better",
        "triple_pole",
    ),
    "TP6": Claim("5.2.2", "m grows fast at first, then levels off", "levels off", "triple_pole"),
    "HE1": Claim("5.2.3", "after 70 000 episodes KBSF flies longer than SARSA", "about 2.25 times", "helicopter"),
    "HE2": Claim("5.2.3", "episodes get longer when epsilon is lowered", "jumps", "helicopter"),
    "HE3": Claim("5.2.3", "KBSF's time a step settles near SARSA's", "slightly above", "helicopter"),
    "TH1": Claim("3.2", "the value error is within xi_v (proposition 1)", "never above", "theory"),
    "TH2": Claim("4.2", "the error of Q(s, a) is within gamma xi_v (proposition 2)", "never above", "theory"),
    "TH3": Claim("4.2", "xi_v goes to 0 with denser states and smaller tau-bar (proposition 3)", "to 0", "theory"),
    "TH4": Claim("5.1", "the on-line error is within its bound (proposition 4)", "never above", "theory"),
    "TH5": Claim("A.3", "the alternative bound holds for any norm (proposition 5)", "holds", "theory"),
}

_STRESSED = (Finding.FAILS, Finding.UNDECIDED)


def write_claims(path: Path, verdicts: dict[str, tuple[str, Verdict]]) -> None:
    """Write the table; ``verdicts`` has, for each claim's id, the scale of its runs and the verdict."""
    unknown = set(verdicts) - set(CLAIMS)
    if unknown:
        raise ValueError(f"No claim of the paper has the id {', '.join(sorted(unknown))}.")
    heading = [*_HEADING[:-2], f"{len(CLAIMS)} claims. {counted(verdicts).capitalize()}.", "", *_HEADING[-2:]]
    text = "\n".join([*heading, *(_line(name, verdicts.get(name)) for name in CLAIMS), "", *_notes(verdicts)])
    with written_beside(path) as beside:
        Path(beside).write_text(text, encoding="utf-8")


_HEADING = (
    "# The paper's claims, and what our runs say",
    "",
    "Generated by `make figures`; do not edit.  Intervals are 99 %.  Times are of one machine, one job at a time.",
    "The rows behind each line are in `rows/`, the pictures beside this file.",
    "",
    RULE,
    "",
    "| id | section | claim | the paper | ours | runs | verdict | scale, command |",
    "|---|---|---|---|---|---|---|---|",
)


def _line(name: str, found: tuple[str, Verdict] | None) -> str:
    claim = CLAIMS[name]
    scale, verdict = found if found else ("", not_run(name, ""))
    word = verdict.finding.value
    command = f"`make figures ONLY={claim.figure} SCALE={scale or 'paper'}`"
    cells = (
        name,
        claim.section,
        claim.text,
        claim.paper,
        verdict.ours,
        str(verdict.n_runs),
        f"**{word}**" if verdict.finding in _STRESSED else word,
        f"{scale or 'none'}: {command}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _notes(verdicts: dict[str, tuple[str, Verdict]]) -> list[str]:
    lines = ["## Notes", ""] if verdicts else []
    for name in [name for name in CLAIMS if name in verdicts]:
        verdict = verdicts[name][1]
        judged = f"Judged: {verdict.judged}." if verdict.judged else ""
        lines += [" ".join(filter(None, (f"**{name}.**", judged, verdict.note))), ""]
    return lines


def counted(verdicts: dict[str, tuple[str, Verdict]]) -> str:
    """Return how many claims hold, do not, are undecided or were not run."""
    words = [verdicts[name][1].finding if name in verdicts else Finding.NOT_RUN for name in CLAIMS]
    return ", ".join(f"{finding.value}: {words.count(finding)}" for finding in Finding if finding in words)
