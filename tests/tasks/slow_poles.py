"""Slow twins of the poles, the judges of the compiled one: pure Python, NumPy columns, and Lagrange's equations."""

import math

import numpy as np

HALF_LENGTHS = (0.5, 0.05, 0.5)
MASSES = (0.1, 0.01, 0.1)


def python_slopes(state, force, gravity, track_friction):
    """Wieland's equations for one state, as they are printed."""
    velocity, angles, speeds = state[1], state[2::2], state[3::2]
    total_force = force - track_friction * ((velocity > 0) - (velocity < 0))
    total_mass = 1.0
    for theta, omega, half_length, mass in zip(angles, speeds, HALF_LENGTHS, MASSES):
        hinge = 2e-6 * omega / (mass * half_length)
        total_force += mass * half_length * omega**2 * math.sin(theta)
        total_force += 0.75 * mass * math.cos(theta) * (hinge + gravity * math.sin(theta))
        total_mass += mass * (1 - 0.75 * math.cos(theta) ** 2)
    acceleration = total_force / total_mass
    slopes = [velocity, acceleration]
    for theta, omega, half_length, mass in zip(angles, speeds, HALF_LENGTHS, MASSES):
        hinge = 2e-6 * omega / (mass * half_length)
        pull = acceleration * math.cos(theta) + gravity * math.sin(theta) + hinge
        slopes += [omega, -0.75 / half_length * pull]
    return slopes


def python_decision(state, force, gravity=-9.8, track_friction=5e-4, step=0.01):
    """One decision for one state, a list of floats: two Runge-Kutta steps."""
    for _ in range(2):
        k1 = python_slopes(state, force, gravity, track_friction)
        k2 = python_slopes([s + step / 2 * k for s, k in zip(state, k1)], force, gravity, track_friction)
        k3 = python_slopes([s + step / 2 * k for s, k in zip(state, k2)], force, gravity, track_friction)
        k4 = python_slopes([s + step * k for s, k in zip(state, k3)], force, gravity, track_friction)
        slopes = [a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4)]
        state = [s + step / 6 * k for s, k in zip(state, slopes)]
    return state


def numpy_slopes(states, forces, gravity, track_friction):
    """The same for many states at once, (n_dims, n): contiguous columns, shared sines, no temporary loops."""
    slopes = np.empty_like(states)
    total_force = forces - track_friction * np.sign(states[1])
    total_mass = np.full(len(forces), 1.0)
    kept = []
    for i in range(len(states) // 2 - 1):
        theta, omega, half_length, mass = states[2 + 2 * i], states[3 + 2 * i], HALF_LENGTHS[i], MASSES[i]
        sine, cosine = np.sin(theta), np.cos(theta)
        pull = 2e-6 / (mass * half_length) * omega + gravity * sine
        total_force += mass * half_length * omega * omega * sine + 0.75 * mass * cosine * pull
        total_mass += mass - 0.75 * mass * cosine * cosine
        kept.append((cosine, pull))
    slopes[::2] = states[1::2]
    slopes[1] = total_force / total_mass
    for i, (cosine, pull) in enumerate(kept):
        slopes[3 + 2 * i] = -0.75 / HALF_LENGTHS[i] * (slopes[1] * cosine + pull)
    return slopes


def numpy_decision(states, forces, gravity=-9.8, track_friction=5e-4, step=0.01):
    """One decision for many states, (n, n_dims)."""
    columns = np.ascontiguousarray(states.T)
    for _ in range(2):
        k1 = numpy_slopes(columns, forces, gravity, track_friction)
        k2 = numpy_slopes(columns + step / 2 * k1, forces, gravity, track_friction)
        k3 = numpy_slopes(columns + step / 2 * k2, forces, gravity, track_friction)
        k4 = numpy_slopes(columns + step * k3, forces, gravity, track_friction)
        columns = columns + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.ascontiguousarray(columns.T)


def lagrange_accelerations(state, force, gravity, track_friction):
    """Solve Lagrange's equations of uniform rods hinged to a cart: mass matrix times accelerations = forces.

    The rod's centre is at (x + l sin theta, l cos theta), its inertia about it m l^2 / 3.  With ``gravity`` > 0 the
    poles hang up: the potential energy is -m gravity l cos theta, in the sign convention of the equations.
    """
    n_poles = len(state) // 2 - 1
    mass_matrix, pushes = np.zeros((1 + n_poles, 1 + n_poles)), np.zeros(1 + n_poles)
    mass_matrix[0, 0] = 1.0 + sum(MASSES[:n_poles])
    pushes[0] = force - track_friction * np.sign(state[1])
    for i, (mass, half_length) in enumerate(list(zip(MASSES, HALF_LENGTHS))[:n_poles], start=1):
        theta, omega = state[2 * i], state[2 * i + 1]
        mass_matrix[0, i] = mass_matrix[i, 0] = mass * half_length * np.cos(theta)
        mass_matrix[i, i] = mass * half_length**2 + mass * half_length**2 / 3
        pushes[0] += mass * half_length * omega**2 * np.sin(theta)
        pushes[i] = -mass * gravity * half_length * np.sin(theta) - 2e-6 * omega
    return np.linalg.solve(mass_matrix, pushes)


def energy(states, gravity):
    """Kinetic plus potential energy of cart and rods, (n,), from the velocities of the rods' centres."""
    total = 0.5 * 1.0 * states[:, 1] ** 2
    for i in range(states.shape[1] // 2 - 1):
        mass, half_length = MASSES[i], HALF_LENGTHS[i]
        theta, omega = states[:, 2 + 2 * i], states[:, 3 + 2 * i]
        sideways = states[:, 1] + half_length * omega * np.cos(theta)
        upwards = -half_length * omega * np.sin(theta)
        total = total + 0.5 * mass * (sideways**2 + upwards**2) + 0.5 * (mass * half_length**2 / 3) * omega**2
        total = total - gravity * mass * half_length * np.cos(theta)
    return total
