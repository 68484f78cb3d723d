"""Pictures. matplotlib is imported in this package only, and without its global state.

`fields` draws over two coordinates of the samples, `curves` along one variable, `checks` what a fit predicts beside
what was observed; `summaries` puts several into one figure; `graphs` and `time_step` draw what a fit is made of;
`operator_cases` and `learned_cases` are the figures of the paper. What they share is in `style`, `embedding` and
`binning`.
"""

from ordiff.plot.binning import cells, running
from ordiff.plot.checks import check, check_scores
from ordiff.plot.curves import history, noise, profile, truth
from ordiff.plot.embedding import Embedding, samples_of
from ordiff.plot.fields import drift, field, landscape, paths, rotation_share
from ordiff.plot.graphs import graph, tangents
from ordiff.plot.learned_cases import nonlinear_results, nonlinear_truth, ornstein_uhlenbeck
from ordiff.plot.operator_cases import spiral, spiral_curvature, spiral_velocity, torus
from ordiff.plot.style import BLUE, COLOURS, DIVERGING, GREEN, ORANGE, PURPLE, RED, SEQUENTIAL, require, units
from ordiff.plot.summaries import demo, fates, overview, rotation
from ordiff.plot.time_step import step_choice

__all__ = [
    "BLUE", "COLOURS", "DIVERGING", "GREEN", "ORANGE", "PURPLE", "RED", "SEQUENTIAL", "Embedding", "cells",
    "check", "check_scores", "demo", "drift", "fates", "field", "graph", "history", "landscape", "noise",
    "nonlinear_results", "nonlinear_truth", "ornstein_uhlenbeck", "overview", "paths", "profile", "require",
    "rotation", "rotation_share", "running", "samples_of", "spiral", "spiral_curvature", "spiral_velocity",
    "step_choice", "tangents", "torus", "truth", "units",
]  # fmt: skip
