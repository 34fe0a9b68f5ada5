"""How far KBSF can be from KBRL on the same data: the paper's bounds, and what they need of the kernels.

Where episodes end, the end is one more absorbing state with value 0, which D maps to an absorbing representative of
its own.  Paper: propositions 2 to 4, lemma 2 (sections 4.2, 5.1 and appendix A).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kbrl.arrays import Floats
from kbrl.checks import as_floats, as_rows, check_finite, check_norm, in_unit_interval, positive, whole
from kbrl.data.transitions import Transitions
from kbrl.mdp.bounds import Bound, Terms, combine, row_norms, stochasticity
from kbrl.model.kernels import Kernel, blocks, nearest_points
from kbrl.model.sample_weights import SampleWeights


def bound_kbsf(
    transitions: Transitions,
    reps: Any,
    sample_kernel: Kernel,
    rep_kernel: Kernel,
    discount: float,
    *,
    n_block: int = 512,
) -> Bound:
    """Bound KBSF's distance from KBRL on the same data: propositions 1 and 2.

    ``value`` is xi_v, for |v-hat* - max D Q-bar*| at every sampled next state that is not an end; ``q_error`` is
    discount * xi_v, for |Q-hat - Q~| by the samples, at any state.  States and ``reps`` are in the same,
    scaled units.

    A terminal transition leads to the end, whatever its next state says, so that KBRL's states are the other next
    states and the end.  The columns of terminal transitions in P-hat^a - D K^a merge into one; the end's own row is
    exact.  Without terminal transitions this is the paper's bound.  Actions never tried are left out.
    Memory is O(n_block * n + n_reps * n): the rows of P-hat^a are made ``n_block`` at a time.
    """
    discount = in_unit_interval(discount, "discount")
    found = combine(_kbsf_terms(transitions, reps, sample_kernel, rep_kernel, n_block), discount)
    return replace(found, of="the values max D Q-bar at the sampled next states")


def bound_online(
    transitions: Transitions,
    reps: Any,
    sample_kernel: Kernel,
    rep_kernel: Kernel,
    discount: float,
    q_error: float,
    *,
    n_block: int = 512,
) -> Bound:
    """Bound |Q-hat - D Q-bar| for action values without the samples (on-line KBSF): proposition 4.

    It holds at the sampled next states that are not ends, and nowhere else.  ``q_error`` is epsilon_Q-bar, how far
    Q-bar is from the reduced MDP's optimal action values; the bound's own ``q_error`` is its ``value``.
    """
    discount = in_unit_interval(discount, "discount")
    if not (np.isfinite(q_error) and q_error >= 0):
        raise ValueError(f"q_error must be a finite number not below 0, but it is {q_error!r}.")
    terms = _kbsf_terms(transitions, reps, sample_kernel, rep_kernel, n_block)
    found = combine(terms, discount, of_q=True, extra=float(q_error))
    return replace(found, of="Q from the representative states, at the sampled next states only")


def kbsf_matrices(
    transitions: Transitions, reps: Floats, sample_kernel: Kernel, rep_kernel: Kernel
) -> tuple[list[Any], Floats]:
    """Return P-bar^a = K^a D^a, (n_reps, n_reps) each, and r-bar, (n_actions, n_reps), straight from the definition.

    An action that was never tried has None.  A model to which these bounds apply has exactly these matrices.
    """
    to_reps, found = rep_kernel.at(reps), list[Any]()
    rewards = np.zeros((transitions.n_actions, len(reps)))
    for action, rows in enumerate(transitions.by_action()):
        if len(rows) == 0:
            found.append(None)
            continue
        own = transitions[rows]
        k = SampleWeights(sample_kernel, own.states).weights(reps)
        rewards[action] = k @ own.rewards
        going = np.flatnonzero(~own.terminals)
        parts = [k[:, going[b]] @ to_reps.weights(own.next_states[going[b]]) for b in blocks(len(going))]
        found.append(sum(parts) if parts else np.zeros((len(reps), len(reps))))
    return found, rewards


def largest_distance(states: Any, reps: Any, *, norm: float = 2.0) -> float:
    """Return the largest distance from a state to its nearest representative state, by a Minkowski norm."""
    states = as_rows(states, "states")
    tree = cKDTree(as_rows(reps, "reps", n_dims=states.shape[1]))
    return float(nearest_points(tree, states, [1], check_norm(norm))[0].max())


def largest_rep_width(distances: Any, w: int, alpha: float, *, decay: tuple[float, float] = (1.0, 0.0)) -> Any:
    """Return lemma 2's phi(s, w, m, alpha): any rep_width below it makes the w nearest representatives dominate.

    Then the weights of the others sum to less than alpha times those of the w nearest.  (So says the appendix; the
    lemma's text in section 4.2 has the two sums the wrong way round.)  ``distances`` are those from a state to the m
    representative states, in any order, or one row per state.  0 where the w-th and the next are equally far: the lemma
    is silent there.  ``decay`` is (lambda, B) with A exp(-z) <= profile(z) <= lambda A exp(-z) for z >= B: (1, 0)
    for the exponential profile.  No pair fits the Gaussian, which falls faster than any A exp(-z).
    """
    alpha, distances = positive(alpha, "alpha"), as_floats(distances, "distances")
    check_finite(distances, "distances")
    m = distances.shape[-1]
    if not 1 <= whole(w, "w") < m:
        raise ValueError(f"w must lie between 1 and the number of distances less one, {m - 1}, but it is {w}.")
    inner_most = np.partition(distances, (w - 1, w), axis=-1)
    inner, outer = inner_most[..., w - 1], inner_most[..., w]
    scale, start = decay
    log_ratio = np.log(alpha * w / ((m - w) * scale))
    widths = np.full(inner.shape, np.inf) if log_ratio >= 0 else (inner - outer) / log_ratio
    if start > 0:
        widths = np.minimum(widths, inner / start)
    return np.where(inner < outer, widths, 0.0)[()]


def _kbsf_terms(transitions: Transitions, reps: Any, sample_kernel: Kernel, rep_kernel: Kernel, n_block: int) -> Terms:
    """Compare KBRL's rows with those of D K^a, a block of next states at a time."""
    reps = as_rows(reps, "reps", n_dims=transitions.n_dims)
    states, to_reps = transitions.next_states[~transitions.terminals], rep_kernel.at(reps)
    actions = [transitions[rows] for rows in transitions.by_action() if len(rows)]
    to_samples = [SampleWeights(sample_kernel, own.states) for own in actions]
    k = [to.weights(reps) for to in to_samples]
    rep_rewards = np.stack([k[a] @ own.rewards for a, own in enumerate(actions)])
    rewards, reward_errors, transition_errors = np.zeros((3, len(actions), len(states)))
    sigma = 0.0
    for rows in blocks(len(states), whole(n_block, "n_block")):
        d = to_reps.weights(states[rows])
        sigma = max(sigma, stochasticity(d))
        for a, own in enumerate(actions):
            p = to_samples[a].weights(states[rows])
            rewards[a, rows] = p @ own.rewards
            reward_errors[a, rows] = np.abs(rewards[a, rows] - d @ rep_rewards[a])
            transition_errors[a, rows] = row_norms((p - d @ k[a])[:, ~own.terminals])
    return Terms(reward_errors, transition_errors, sigma, rewards, rep_rewards, bool(transitions.terminals.any()))
