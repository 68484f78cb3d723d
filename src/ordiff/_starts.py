"""Where a process starts: points with weights, and their mass on the states of a chain."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._polynomials import kd_tree
from ordiff._validation import Array

# Spacings up to which states are connected.
CONNECTED = 3.0


def origins_of(start: ArrayLike, weights: ArrayLike | None, n: int) -> tuple[Array, Array]:
    """Points of the start, (s, n), and how much each counts, (s,)."""
    origins = _validation.points(np.atleast_2d(_validation.as_float(start, "start")), "start", minimum=1)
    w = np.ones(len(origins)) if weights is None else _validation.weights(weights, len(origins), "start_weights")
    return _validation.node_vectors(origins, (len(origins), n), "start"), w


def initial_mass(points: Array, volumes: Array, origins: Array | None, weights: Array | None, spacing: float) -> Array:
    """The mass of the start, (N,): uniform, or on the first state, or of several origins on the states around them."""
    if origins is None:
        return volumes / volumes.sum()
    if len(origins) == 1:
        return np.where(np.arange(len(points)) == 0, 1.0, 0.0)
    assert weights is not None
    mass = weights @ start_kernels(points, volumes, origins, spacing)
    return mass / mass.sum()


def start_kernels(points: Array, volumes: Array, origins: Array, spacing: float) -> sp.csr_array:
    """Masses of narrow gaussians about the origins, (s, N); 0 for an origin that is apart."""
    distance, near = kd_tree(points).query(origins, min(12, len(points)))
    scaled = distance / (0.7 * spacing)
    K = np.exp(-0.5 * scaled**2 + 0.5 * scaled[:, :1] ** 2) * volumes[near]
    K *= (np.where(distance[:, 0] > CONNECTED * spacing, 0.0, 1.0) / K.sum(axis=1))[:, None]
    return sp.csr_array((K.ravel(), near.ravel(), np.arange(0, K.size + 1, K.shape[1])), shape=(len(K), len(points)))
