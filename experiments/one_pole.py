"""One pole with correct physics: how often do large sparse KBSF models balance it?

    python experiments/one_pole.py --quick       small data and model, one seed, some seconds
    python experiments/one_pole.py               n = 2 000 000, n_reps = 40 000, seeds 0 to 4
    python experiments/one_pole.py --baseline    the same size with the settings that we started from

What was tried, and what it gave, is in docs/one_pole.md.
"""

import argparse
import os
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np

from kbrl import KBSF, Transitions
from kbrl.arrays import Array, Floats
from kbrl.tasks.pole_balancing import PoleBalancing
from kbrl.trials import confidence_interval

DISCOUNT = 0.99
FAST_BOX = (2.3, 3.5, 0.6, 3.0)  # half-widths of the start states; the test box has cart speeds up to 0.24 m/s only
# Standard deviations of random episodes from the test box; of the pole's speed, half of it.
SCALING = (0.7315, 0.7250, 0.3005, 0.7045)


def in_pairs(log: Transitions) -> Transitions:
    """Take every two decisions in a row as one, with four actions: 2 * first + second.

    An episode that fails at the first decision does so whatever the second would have been: it counts for both.
    """
    assert log.episodes is not None
    rows = np.flatnonzero(log.episodes[:-1] == log.episodes[1:])
    ends = np.flatnonzero(log.terminals)
    first = np.concatenate([rows, ends, ends])
    last = np.concatenate([rows + 1, ends, ends])
    second = np.concatenate([log.action_indices[rows + 1], np.zeros(len(ends), int), np.ones(len(ends), int)])
    return Transitions(
        log.states[first],
        2 * log.action_indices[first] + second,
        log.rewards[first] + np.where(last > first, DISCOUNT * log.rewards[last], 0.0),
        log.next_states[last],
        log.terminals[last],
    )


def learn_in_pairs(log: Transitions, n_reps: int, seed: int) -> Callable[[Floats], Array]:
    """Learn values of pairs of decisions; act by the first of the best pair, and decide anew at the next state."""
    learner = KBSF(
        n_reps,
        "random",
        sample_width=1.0,
        rep_width=0.3,
        sample_neighbors=40,
        rep_neighbors=5,
        discount=DISCOUNT**2,
        scaling=np.array(SCALING),
        random_state=seed,
        min_cases=1,
        order=0,
    )
    policy = learner.fit(in_pairs(log)).policy()
    return lambda observations: np.asarray(policy(observations)) // 2


def learn_plainly(log: Transitions, n_reps: int, seed: int) -> Callable[[Floats], Array]:
    """Learn as usual, with the settings of the first trials."""
    learner = KBSF(
        n_reps, "random", 1.0, 0.1, sample_neighbors=20, rep_neighbors=5, random_state=seed, min_cases=1, order=0
    )
    return learner.fit(log).policy()


def main() -> None:
    """Run all seeds and print the success rate of each, then their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--n", type=int, default=2_000_000, help="number of transitions")
    parser.add_argument("--n-reps", type=int, default=40_000, help="number of representative states")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    n, n_reps, seeds = (200_000, 4_000, [0]) if options.quick else (options.n, options.n_reps, options.seeds)
    task = PoleBalancing(1, gravity="down", start="test box" if options.baseline else FAST_BOX)
    learn = learn_plainly if options.baseline else learn_in_pairs
    rates = []
    for seed in seeds:
        start = perf_counter()
        log = task.collect(n, random_state=seed)
        collected, used = perf_counter(), process_time()
        policy = learn(log, n_reps, seed)
        learnt, used = perf_counter(), process_time() - used
        rates.append(task.success_rate(task.evaluate(policy)))
        print(
            f"seed {seed}: success rate {rates[-1]:.3f}, n {n}, n_reps {n_reps}, simulated in "
            f"{collected - start:.1f} s, learnt in {learnt - collected:.1f} s ({used:.1f} s of processor time, "
            f"load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
    mean, half_width = confidence_interval(rates)
    print(f"mean {mean:.3f} +- {half_width:.3f} (99 %, {len(rates)} runs)")


if __name__ == "__main__":
    main()
