"""Pictures. matplotlib is imported in this package only, and without its global state.

`fields` draws over two coordinates of the samples, `surface` above them, `curves` along one variable, `checks` what a
fit predicts beside what was observed; `summaries` puts several into one figure; `graphs` and `time_step` draw what a
fit is made of; `operator_cases` and `learned_cases` are the figures of the paper. What they share is in `style`,
`embedding` (any two coordinates, such as UMAP), `branches` and `binning`.
"""

from ordiff.plot.binning import cells, running
from ordiff.plot.branches import branches
from ordiff.plot.checks import check, check_scores
from ordiff.plot.curves import history, noise, profile, trends, truth
from ordiff.plot.embedding import Embedding, LocalEmbedding, as_embedding, samples_of
from ordiff.plot.fields import drift, field, landscape, paths, rotation_share
from ordiff.plot.graphs import graph, tangents
from ordiff.plot.learned_cases import nonlinear_results, nonlinear_truth, ornstein_uhlenbeck
from ordiff.plot.operator_cases import spiral, spiral_curvature, spiral_velocity, torus
from ordiff.plot.style import BLUE, COLOURS, DIVERGING, GREEN, ORANGE, PURPLE, RED, SEQUENTIAL, require, units
from ordiff.plot.summaries import demo, fates, overview, rotation
from ordiff.plot.surface import landscape_3d
from ordiff.plot.time_step import step_choice

__all__ = [
    "BLUE", "COLOURS", "DIVERGING", "GREEN", "ORANGE", "PURPLE", "RED", "SEQUENTIAL", "Embedding", "LocalEmbedding",
    "as_embedding", "branches", "cells", "check", "check_scores", "demo", "drift", "fates", "field", "graph", "history",
    "landscape", "landscape_3d", "noise", "nonlinear_results", "nonlinear_truth", "ornstein_uhlenbeck", "overview",
    "paths", "profile", "require", "rotation", "rotation_share", "running", "samples_of", "spiral", "spiral_curvature",
    "spiral_velocity", "step_choice", "tangents", "torus", "trends", "truth", "units",
]  # fmt: skip
