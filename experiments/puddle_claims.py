"""What the runs of the puddle world say about the paper's claims PW1 to PW6.

The claims are about n = 8000, m from 10 to 150 and the widths 0.01, 0.1, 1: without rows of these, nothing is said.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from experiments.puddle import (
    ALL_M,
    ALL_N,
    LONG_N,
    PAPER_KBRL,
    READINGS,
    TIMED_WIDTH,
    WIDTHS,
    M,
    N,
    best_kbrl,
    best_kbsf,
    timed_kbrl,
)
from experiments.rule import All, Estimate, Sampled, estimate, gap
from experiments.study import Row, Verdict, by_seed, distinct, interval, measured, not_run, select, shown, with_interval

# "Essentially the same performance": the paper's intervals are 0.08 to either side of its best returns (PW6), so two of
# its curves that are further apart than twice that could not have been drawn as the same.
LIKE = 0.16
LESS_WORK = 0.9958  # the paper's share of operations that KBSF saves
NEAR_LESS = 0.005  # "approximately", for that share
NEAR_ONE = 0.2  # "about 1", for a slope


def judge(rows: list[Row]) -> list[Verdict]:
    """Judge PW1 to PW6."""
    return [_pw1(rows), _pw2(rows), _pw3(rows), _pw4(rows), _pw5(rows), _pw6(rows)]


def _pw1(rows: list[Row]) -> Verdict:
    kbsf = select(rows, part="KBSF", over="n", n=N, m=M)
    best, by_reps, kbrl = best_kbsf(kbsf), best_kbsf(kbsf, "rep_return"), best_kbrl(select(rows, part="KBRL"), N)
    if not best or not kbrl:
        return not_run("PW1", f"Needs KBSF({N}, {M}) and KBRL({N}).")
    (mean, half, n_runs), (other, other_half, n_other) = interval(best, "return"), interval(kbrl, "return")
    difference = gap(by_seed(best, "return"), by_seed(kbrl, "return"))
    ours = f"difference {with_interval(difference)}"
    note = (
        "A test of equivalence: two one-sided tests at 0.5 % each, that is, the 99 % interval of the difference "
        f"must lie within {LIKE:g} of 0. The margin is twice the half width of the paper's own intervals, "
        f"0.08: its curves could not have been called the same beyond it. KBSF {shown(mean, half)}, KBRL "
        f"{shown(other, other_half)}. Best widths: KBSF tau {best[0]['tau']:g} and "
        f"tau-bar {best[0]['tau_bar']:g}, KBRL tau {kbrl[0]['tau']:g}; {n_runs} runs of KBSF, {n_other} of KBRL. KBSF "
        f"with Q from the representative states: {shown(*interval(by_reps, 'rep_return')[:2])}."
    )
    return Verdict("PW1", ours, Sampled("KBSF's return less KBRL's", difference, -LIKE, LIKE), note)


def _pw2(rows: list[Row]) -> Verdict:
    over_m = select(rows, part="KBSF", over="m", n=N)
    if not {ALL_M[0], ALL_M[-1]} <= set(distinct(over_m, "m")):
        return not_run("PW2", f"Needs KBSF({N}, m) for m from {ALL_M[0]} to {ALL_M[-1]}.")
    by_samples, by_reps = (
        {m: by_seed(best_kbsf(select(over_m, m=m), name), name) for m in distinct(over_m, "m")}
        for name in ("return", "rep_return")
    )
    first, last = (estimate(by_samples[m].values()) for m in (ALL_M[0], ALL_M[-1]))
    rank = _rank_correlation(by_samples)
    ours = f"{first.mean:.2f} at m = 10, {last.mean:.2f} at m = 150; rank correlation {rank.mean:.2f}"
    note = (
        f"On the same logs; the rank correlation with m is that of each run. Mean returns by m: {_listed(by_samples)}. "
        f"With Q from the representative states: {_listed(by_reps)}, rank correlation "
        f"{with_interval(_rank_correlation(by_reps))}."
    )
    gain = gap(by_samples[ALL_M[-1]], by_samples[ALL_M[0]])
    parts = Sampled("return at m = 150 less that at m = 10", gain, low=0.0), Sampled("rank correlation", rank, low=0.0)
    return Verdict("PW2", ours, All(parts), note)


def _rank_correlation(found: dict[int, dict[int, float]]) -> Estimate:
    """Estimate the rank correlation of m and return, run by run."""
    seeds = set.intersection(*(set(returns) for returns in found.values()))
    by_run = [[returns[seed] for returns in found.values()] for seed in sorted(seeds)]
    # Returns that are all the same have no ranks, and no correlation with m.
    return estimate(float(spearmanr(list(found), own)[0]) if len(set(own)) > 1 else 0.0 for own in by_run)


def _listed(found: dict[int, dict[int, float]]) -> str:
    return ", ".join(f"{np.mean(list(returns.values())):.2f} ({m})" for m, returns in found.items())


def _pw3(rows: list[Row]) -> Verdict:
    kbsf, kbrl = select(rows, part="times", over="n", n=N, m=M), select(timed_kbrl(rows), n=N)
    pairs = [(own, other) for own in kbsf for other in kbrl if own["seed"] == other["seed"]]
    if not pairs:
        return not_run("PW3", f"Needs times of KBSF({N}, {M}) and KBRL({N}).")
    saved = {
        name: estimate(100 * (1 - own[name] / other[name]) for own, other in pairs)
        for name in ("cpu_seconds", "operations")
    }
    limits = 100 * (LESS_WORK - NEAR_LESS), 100 * (LESS_WORK + NEAR_LESS)
    by_time = Sampled("the share of CPU time saved in per cent", saved["cpu_seconds"], *limits, 100 * LESS_WORK)
    by_count = Sampled("the share of multiply-adds saved in per cent", saved["operations"], *limits)
    ours = f"{with_interval(saved['cpu_seconds'])} % less"
    note = (
        "Two readings. Judged: the share of time, because the paper reads its figure off its plot of run times. The "
        f"other, the number of operations it speaks of: {by_count}. Limits: {100 * NEAR_LESS:g} percentage points to "
        f"either side. KBSF {1000 * interval(kbsf, 'cpu_seconds')[0]:.0f} ms, KBRL "
        f"{interval(kbrl, 'cpu_seconds')[0]:.1f} s, both at width {TIMED_WIDTH:g}, one after the other; CPU time. "
        "Multiply-adds are counted from the sizes and the iterations of our solvers, which need fewer sweeps than the "
        "paper's value iteration: sweeps are most of KBRL's work, and little of KBSF's."
    )
    return Verdict("PW3", ours, by_time, note)


def _pw4(rows: list[Row]) -> Verdict:
    kbsf, kbrl = select(rows, part="KBSF", over="n", m=M), select(rows, part="KBRL")
    ends = ALL_N[0], ALL_N[-1]
    if any(not {*ends} <= set(distinct(found, "n")) for found in (kbsf, kbrl)):
        return not_run("PW4", f"Needs both methods from n = {ends[0]} to {ends[1]}.")
    found = {
        "KBSF": [by_seed(best_kbsf(select(kbsf, n=n)), "return") for n in ends],
        "KBRL": [by_seed(best_kbrl(kbrl, n), "return") for n in ends],
    }
    texts, parts = [], []
    for name, (few, many) in found.items():
        texts.append(f"{name} {estimate(few.values()).mean:.2f} to {estimate(many.values()).mean:.2f}")
        parts.append(Sampled(f"gain of {name} from n = {ends[0]} to {ends[1]}", gap(many, few), low=0.0))
    runs = ", ".join(f"{len(few)} runs of {name}" for name, (few, _) in found.items())
    return Verdict("PW4", "; ".join(texts), All(tuple(parts)), f"On the same logs, m = {M}, best widths per n; {runs}.")


def _pw5(rows: list[Row]) -> Verdict:
    kbsf, kbrl = select(rows, part="times", over="n", m=M), timed_kbrl(rows)
    slopes = [_slopes(kbsf, LONG_N), _slopes(kbsf, ALL_N), _slopes(kbrl, ALL_N)]
    if not all(slopes):
        return not_run("PW5", f"Needs KBSF with n up to {LONG_N[-1]} and KBRL with n up to {N}.")
    long, short, other = map(estimate, slopes)
    ours = f"KBSF {with_interval(long)}, KBRL {with_interval(other)}"
    note = (
        f"Slopes of log CPU time on log n. KBSF's is from n = {LONG_N[0]} to {LONG_N[-1]}; from {ALL_N[0]} to {N}, "
        f"where its fixed costs count, it is {with_interval(short)}. A sweep over KBRL's model costs n n_hat, and "
        "our solver needs about as many sweeps for any n; evaluating policies by linear systems would cost a third "
        "power."
    )
    parts = Sampled("KBSF's slope", long, 1 - NEAR_ONE, 1 + NEAR_ONE), Sampled("KBRL's slope", other, low=2.0)
    return Verdict("PW5", ours, All(parts), note)


def _slopes(rows: list[Row], places: tuple[int, ...]) -> list[float]:
    """Return the slope of log time on log n for each seed that has all of these n."""
    found = []
    for seed in distinct(rows, "seed"):
        seconds = {row["n"]: row["cpu_seconds"] for row in select(rows, seed=seed)}
        if set(places) <= set(seconds):
            found.append(float(np.polyfit(np.log(places), np.log([seconds[n] for n in places]), 1)[0]))
    return found


def _pw6(rows: list[Row]) -> Verdict:
    kbrl = select(rows, part="KBRL", n=N)
    ours = {tau: measured(select(kbrl, tau=tau), "return") for tau in PAPER_KBRL}
    if not all(found.n_runs for found in ours.values()):
        return not_run("PW6", f"Needs KBRL({N}) at the widths {WIDTHS}.")
    parts = tuple(
        Sampled(f"return at tau {tau:g}", ours[tau], mean - half, mean + half, mean)
        for tau, (mean, half) in PAPER_KBRL.items()
    )
    reached = interval(select(kbrl, tau=TIMED_WIDTH), "reached")[0]
    note = (
        f"At tau 1, 0.1, 0.01; the limits are the paper's own intervals. {_readings(rows)} A penalty for "
        f"failing would not lower our level at tau {TIMED_WIDTH:g}: {100 * reached:.0f} % of its test episodes reach "
        "the goal."
    )
    return Verdict("PW6", ", ".join(map(with_interval, ours.values())), All(parts), note)


def _readings(rows: list[Row]) -> str:
    """List what other readings gave, and which is closest to the paper by the sum of the three differences."""
    read = select(rows, part="reading")
    if not read:
        return "No other readings were run."
    n, n_runs = read[0]["n"], len(distinct(read, "seed"))
    found = {READINGS[name].text: select(read, reading=name) for name in distinct(read, "reading")}
    found["ours"] = select(rows, part="KBRL", n=n)
    means = {text: [interval(select(own, tau=tau), "return")[0] for tau in PAPER_KBRL] for text, own in found.items()}
    gaps = {text: sum(abs(a - b) for a, (b, _) in zip(own, PAPER_KBRL.values())) for text, own in means.items()}
    listed = "; ".join(f"{text} {', '.join(f'{mean:.2f}' for mean in own)}" for text, own in means.items())
    return f"Readings tried at n = {n}, {n_runs} runs: {listed}. Closest in sum: {min(gaps, key=gaps.__getitem__)}."
