"""The paper's formulas as slow, obvious loops: the judge of the fast code.

States, rewards and so on are plain sequences; nothing here is shared with the library.
"""

import math


def distance(s, t, norm=2):
    differences = [abs(x - y) for x, y in zip(s, t)]
    if norm == 2:
        return math.sqrt(sum(x * x for x in differences))
    return max(differences) if norm == math.inf else sum(x**norm for x in differences) ** (1 / norm)


def exponential(z):
    return math.exp(-z)


def gaussian(z):
    return math.exp(-z * z / 2)


def uniform(z):
    return 1.0 if z <= 1 + 1e-12 else 0.0


def kappa(s, points, width, phi=exponential, neighbors=None, norm=2):
    """Return the normalised kernel kappa(s, .) over the points: all but its largest values are zero.

    Points that tie for the last place share it.  ``width`` is one number, or one per point.  Where all values are zero,
    the nearest point counts.
    """
    widths = width if isinstance(width, list) else [width] * len(points)
    z = [distance(s, point, norm) / w for point, w in zip(points, widths)]
    values = [phi(x) for x in z]
    if neighbors is not None and neighbors < len(points):
        last = sorted(z)[neighbors - 1]
        n_nearer, n_tied = sum(x < last for x in z), sum(x == last for x in z)
        share = (neighbors - n_nearer) / n_tied
        values = [value * (1 if x < last else share if x == last else 0) for value, x in zip(values, z)]
    if sum(values) == 0:
        values = [1.0 if x == min(z) else 0.0 for x in z]
    return [value / sum(values) for value in values]


def kbsf_model(transitions, reps, tau, tau_bar, *, phi=exponential, mu=None, mu_bar=None, norm=2):
    """Return P-bar[a][i][j] and r-bar[a][i] of Algorithm 1.

    ``transitions`` is a list, one entry per action, of lists of (state, reward, next state, is terminal).
    """
    probabilities, rewards = [], []
    for samples in transitions:
        to_samples = [kappa(rep, [s for s, _, _, _ in samples], tau, phi, mu, norm) for rep in reps]
        to_reps = [
            [0.0] * len(reps) if end else kappa(next_state, reps, tau_bar, phi, mu_bar, norm)
            for _, _, next_state, end in samples
        ]
        probabilities.append(
            [
                [sum(k * row[j] for k, row in zip(to_samples[i], to_reps)) for j in range(len(reps))]
                for i in range(len(reps))
            ]
        )
        rewards.append([sum(k * r for k, (_, r, _, _) in zip(row, samples)) for row in to_samples])
    return probabilities, rewards


def update(model, weights, samples, reps, tau, tau_bar):
    """Algorithm 2 for one action: update P-bar, r-bar and w in place by further transitions."""
    probabilities, rewards = model
    for i, rep in enumerate(reps):
        k = [exponential(distance(rep, s) / tau) for s, _, _, _ in samples]
        new_weight = sum(k)
        for j in range(len(reps)):
            b = sum(
                k[t] * (0.0 if end else kappa(next_state, reps, tau_bar)[j])
                for t, (_, _, next_state, end) in enumerate(samples)
            )
            probabilities[i][j] = (b + probabilities[i][j] * weights[i]) / (weights[i] + new_weight)
        e = sum(k[t] * r for t, (_, r, _, _) in enumerate(samples))
        rewards[i] = (e + rewards[i] * weights[i]) / (weights[i] + new_weight)
        weights[i] += new_weight


def value_iteration(probabilities, rewards, discount, n_sweeps):
    """Return q[i][a] after so many applications of the Bellman operator to zero."""
    n_states = len(rewards[0])
    values = [0.0] * n_states
    q = []
    for _ in range(n_sweeps):
        q = [
            [
                rewards[a][i] + discount * sum(p * v for p, v in zip(probabilities[a][i], values))
                for a in range(len(rewards))
            ]
            for i in range(n_states)
        ]
        values = [max(row) for row in q]
    return q


def kbrl_model(transitions, tau, phi=exponential, mu=None, norm=2):
    """Return P-hat[a][i][j] and r-hat[a][i] over all next states, ordered by action."""
    everything = [(a, sample) for a, samples in enumerate(transitions) for sample in samples]
    probabilities, rewards = [], []
    for a, samples in enumerate(transitions):
        p_rows, r_row = [], []
        for _, (_, _, next_state, _) in everything:
            weights = iter(kappa(next_state, [s for s, _, _, _ in samples], tau, phi, mu, norm))
            row, reward = [], 0.0
            for b, (_, r, _, end) in everything:
                weight = next(weights) if a == b else 0.0
                reward += weight * r
                row.append(0.0 if end else weight)
            p_rows.append(row)
            r_row.append(reward)
        probabilities.append(p_rows)
        rewards.append(r_row)
    return probabilities, rewards


def q_from_samples(s, transitions, next_values, tau, discount, phi=exponential):
    """Return [Q(s, a)]: kappa_a(s, s_i) [r_i + discount V(s'_i)]; next_values[a][i] is V, zero after an end."""
    q = []
    for samples, values in zip(transitions, next_values):
        weights = kappa(s, [state for state, _, _, _ in samples], tau, phi)
        q.append(sum(w * (r + discount * v) for w, (_, r, _, _), v in zip(weights, samples, values)))
    return q


def q_from_reps(s, reps, rep_q, tau_bar, phi=exponential):
    """Return [Q(s, a)]: kappa-bar(s, rep i) Q-bar(rep i, a)."""
    weights = kappa(s, reps, tau_bar, phi)
    return [sum(w * row[a] for w, row in zip(weights, rep_q)) for a in range(len(rep_q[0]))]
