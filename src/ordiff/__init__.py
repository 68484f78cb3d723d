"""Ordered diffusion kernels: from snapshots and an ordering to the Markov operator and generator behind them."""

from ordiff import datasets, tuning
from ordiff._check import GraphError, MissingExtraError, OrdiffWarning, ResolutionError
from ordiff.fields import Moments, local_moments, mean_curvature, velocity
from ordiff.geometry import TangentSpaces, balanced_density, kernel_density, knn_density, length_scale, smooth
from ordiff.graph import NeighborGraph, geodesic_order, threshold_graph
from ordiff.kernel.compose import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.kernel.profile import Compact, Gaussian, Profile, SuperGaussian
from ordiff.kernel.schemes import richardson, strang
from ordiff.operator import Extrapolation, MarkovOperator, Product
from ordiff.spectral import Eigenbasis, eigenbasis
from ordiff.topology import cyclic_hint

__version__ = "0.1.0"

__all__ = [
    "Compact", "Eigenbasis", "Extrapolation", "Gaussian", "GraphError", "Kernel", "MarkovOperator", "MissingExtraError",
    "Moments", "NeighborGraph", "Ordering", "OrdiffWarning", "Product", "Profile", "ResolutionError", "SuperGaussian",
    "TangentSpaces", "balanced_density", "cyclic_hint", "datasets", "eigenbasis", "geodesic_order", "kernel_density",
    "knn_density", "length_scale", "local_moments", "mean_curvature", "richardson", "smooth", "strang",
    "threshold_graph", "tuning", "velocity",
]  # fmt: skip
