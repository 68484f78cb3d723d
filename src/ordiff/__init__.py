"""Ordered diffusion kernels: from snapshots and an ordering to the Markov operator and generator behind them."""

from typing import TYPE_CHECKING, Any

from ordiff import datasets, tuning
from ordiff._signals import deferred_interrupts
from ordiff._validation import GraphError, MissingExtraError, OrdiffWarning, ResolutionError, SolveError
from ordiff.fields import Moments, local_moments, mean_curvature, velocity
from ordiff.geometry import TangentSpaces, balanced_density, kernel_density, knn_density, length_scale, smooth
from ordiff.graph import NeighborGraph, geodesic_order, threshold_graph
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.kernel.profile import Compact, Gaussian, Profile, SuperGaussian
from ordiff.kernel.schemes import richardson, strang
from ordiff.learning.settings import DesignedStates, SampleStates, Smoothness, Solver, TimeDensity
from ordiff.operator import Extrapolation, MarkovOperator, Product
from ordiff.passage import (
    PassageTime,
    ReactiveFlux,
    committor,
    expected_occupancy,
    fate_probabilities,
    first_passage_time,
    reactive_flux,
    stationary,
    terminal_sets,
)
from ordiff.spectral import Eigenbasis, eigenbasis, smooth_basis
from ordiff.states import States
from ordiff.topology import cyclic_hint

if TYPE_CHECKING:
    from ordiff import plot, single_cell
    from ordiff.model import SnapshotSDE, load

__version__ = "0.1.0"

__all__ = [
    "Compact", "DesignedStates", "Eigenbasis", "Extrapolation", "Gaussian", "GraphError", "Kernel", "MarkovOperator",
    "MissingExtraError", "Moments", "NeighborGraph", "Ordering", "OrdiffWarning", "PassageTime", "Product", "Profile",
    "ReactiveFlux", "ResolutionError", "SampleStates", "Smoothness", "SnapshotSDE", "SolveError", "Solver", "States",
    "SuperGaussian", "TangentSpaces", "TimeDensity", "balanced_density", "committor", "cyclic_hint", "datasets",
    "eigenbasis", "expected_occupancy", "fate_probabilities", "first_passage_time", "geodesic_order", "kernel_density",
    "knn_density", "length_scale", "load", "local_moments", "mean_curvature", "plot", "reactive_flux", "richardson",
    "single_cell", "smooth", "smooth_basis", "stationary", "strang", "terminal_sets", "threshold_graph", "tuning",
    "velocity",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for: the estimator, as scikit-learn takes long, `plot`, `single_cell`."""
    if name in ("single_cell", "plot", "SnapshotSDE", "load"):
        from importlib import import_module

        with deferred_interrupts():  # half an import would break the next one
            is_module = name in ("single_cell", "plot")
            module = import_module(f"ordiff.{name}" if is_module else "ordiff.model")
        return module if is_module else getattr(module, name)
    raise AttributeError(f"module 'ordiff' has no attribute {name!r}")
