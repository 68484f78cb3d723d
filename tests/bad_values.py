"""Every parameter of every public function, and values that it must refuse.

`KINDS` has the bad values of each kind of parameter, `TABLE` the kind of each parameter, with a call that is right. A
new parameter is covered by a word in its row. A kind that ends in "?" may be None; "-" marks what is not checked: a
flag, a seed, or what is handed on to another function of the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import ordiff as od
from ordiff import tuning

M = 60  # samples of the graph
MASKED = np.ma.masked_array(np.ones(M), np.arange(M) == 3)
DATES = np.full(M, np.datetime64("2020-01-01"))
NOT_A_NUMBER = [None, "x", np.nan, np.inf, -np.inf, 1j, True, [1.0, 2.0], {}, np.datetime64("2020-01-01"), object()]
NOT_VALUES = ["x", MASKED, DATES, np.ones(M) * 1j, np.ones(M - 1), np.ones((M, 2, 2)), np.full(M, np.nan),
              np.r_[np.inf, np.ones(M - 1)], {}, [[1.0], [1.0, 2.0]], object()]  # fmt: skip

KINDS: dict[str, list[Any]] = {
    "positive": [*NOT_A_NUMBER, 0, -1.0, -0.0],
    "number": NOT_A_NUMBER,
    "not negative": [*NOT_A_NUMBER, -1.0],
    "share": [*NOT_A_NUMBER, 0, 1, -0.5, 1.5],
    "count": [*NOT_A_NUMBER, 0, -1, 1.5, 2.0, "2", np.array([3])],
    "factor": [*NOT_A_NUMBER, 0, -1.0, 1e200],
    "recall": [*NOT_A_NUMBER, 0.5, 1.5],
    "word": ["other", "", None, 3, np.nan, True, ["a"], np.array(["a", "b"]), {}, object()],
    "values": [*NOT_VALUES, None, 1.0],
    "value or values": [*NOT_VALUES, None],
    "positive values": [*NOT_VALUES, None, 0.0, -1.0, np.zeros(M), np.r_[-1.0, np.ones(M - 1)]],
    "points": ["x", None, 3.0, np.ones(M), np.full((M, 2), np.nan), np.full((M, 2), 1e200), np.ones((M, 2)) * 1j,
               np.ma.masked_array(np.ones((M, 2)), np.arange(2 * M).reshape(M, 2) == 3), np.ones((0, 2)),
               np.full((M, 2), np.datetime64("2020-01-01")), np.ones((M, 0)), {}, object()],
    "samples": ["x", None, -1, M, 1.5, [], np.nan, 1j, {}, object(), [0, M], MASKED, np.zeros(M, bool),
                np.ones(3, bool)],
    "graph": [None, 3, "x", np.ones((M, 2)), {}, object()],
    "operator": [None, 3, "x", np.eye(M), {}, object()],
    "kernel": [None, 3, "x", {}, object()],
    "function": [None, 3, "x", np.ones(3)],
}  # fmt: skip


@cache
def X() -> Any:
    return np.random.default_rng(0).normal(size=(M, 2))


@cache
def graph() -> od.NeighborGraph:
    return od.NeighborGraph.build(X(), k=12)


@cache
def kernel() -> od.Kernel:
    return od.Kernel(od.Ordering(X()[:, 0]), noise=1.0)


@cache
def op() -> od.MarkovOperator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        return kernel().operator(graph(), 0.3)


def pattern() -> dict[str, Any]:
    return {"indptr": graph().indptr, "indices": graph().indices, "sqdist": graph().sqdist, "X": X()}


def row(function: Any, given: Any = None, **kinds: str) -> tuple[Any, Any, dict[str, str]]:
    return function, given or dict, kinds


def on_graph(**more: Any) -> Any:
    return lambda: {"graph": graph(), **more}


def on_op(**more: Any) -> Any:
    return lambda: {"op": op(), **more}


def on_kernel(**more: Any) -> Any:
    return lambda: {"kernel": kernel(), "graph": graph(), **more}


SPEED = {"speed": "value or values", "scale": "-", "gradient": "-"}
ENDS = {"A": [0], "B": [1]}

TABLE: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "Compact": row(od.Compact, power="not negative"),
    "DesignedStates": row(od.DesignedStates, spacing="positive", dimension="count?", n_neighbors="count",
                          max_states="count"),
    "SampleStates": row(od.SampleStates, density="-", dimension="count?", n_neighbors="count", alpha="number"),
    "Smoothness": row(od.Smoothness, ordering="not negative", noise="not negative", rotation="not negative",
                      basis="count?", speed="word",
                      action="not negative"),
    "Solver": row(od.Solver, eps="positive", max_iter="count", tol="positive", n_starts="count"),
    "TimeDensity": row(od.TimeDensity, density="-", horizon="positive?"),
    "Kernel": row(od.Kernel, ordering="-", noise="-", noise_right="-", beta="number", anisotropy="-", basis="-",
                  normal_weight="positive", coupled="-", profile="word", dimension="count?"),
    "Kernel.operator": row(lambda **given: kernel().operator(**given), on_graph(eps=0.3), graph="graph",
                           eps="positive", density="-", alpha="number", weight="positive values?",
                           self_weight="positive"),
    "MarkovOperator": row(od.MarkovOperator, on_graph(data=1.0, eps=0.3, density=1.0), graph="graph", data="values",
                          eps="positive", density="positive values"),
    "NeighborGraph": row(od.NeighborGraph, pattern, indptr="values", indices="values", sqdist="values", X="points?"),
    "NeighborGraph.build": row(od.NeighborGraph.build, lambda: {"X": X(), "k": 5}, X="points", k="count?",
                               radius="-", method="word", random_state="-", recall="recall"),
    "NeighborGraph.build radius": row(od.NeighborGraph.build, lambda: {"X": X(), "radius": 1.0}, radius="positive?"),
    "NeighborGraph.from_distances": row(od.NeighborGraph.from_distances, lambda: {"D": np.ones((3, 3)) - np.eye(3)},
                                        D="points", X="points?"),
    "NeighborGraph.radius": row(lambda **given: graph().radius(**given), k="count", pad="-"),
    "NeighborGraph.nearest": row(lambda **given: graph().nearest(**given), k="count", pad="-"),
    "NeighborGraph.geodesic": row(lambda **given: graph().geodesic(**given), lambda: {"sources": 0},
                                  sources="samples", weights="values?"),
    "Ordering": row(lambda **given: od.Kernel(od.Ordering(**given)).operator(graph(), 0.3),
                    lambda: {"values": X()[:, 0]}, values="values", **SPEED),
    "Ordering.times": row(od.Ordering.times, lambda: {"times": X()[:, 0]}, times="-", speed="-", gradient="-"),
    "Ordering.local": row(od.Ordering.local, fn="function", **SPEED | {"speed": "-"}),
    "Ordering.field": row(od.Ordering.field, lambda: {"V": X()}, V="points", tangents="-", **SPEED | {"speed": "-"}),
    "Ordering.cyclic": row(od.Ordering.cyclic, lambda: {"phase": X()[:, 0], "period": 1.0}, phase="-",
                           period="positive", **SPEED | {"speed": "-"}),
    "States.design": row(od.States.design, lambda: {"X": X(), "spacing": 0.5}, X="points", spacing="positive?",
                         start="points?", start_weights="-", radius="positive?", dimension="count?", random_state="-"),
    "TangentSpaces.fit": row(od.TangentSpaces.fit, on_graph(), graph="graph", k="count", variance="share",
                             dimension="count?"),
    "balanced_density": row(od.balanced_density, on_graph(), graph="graph", k="count?", dimension="count?",
                            iterations="count"),
    "kernel_density": row(od.kernel_density, on_graph(), graph="graph", k="count", bandwidth="positive?",
                          dimension="count?"),
    "knn_density": row(od.knn_density, on_graph(), graph="graph", k="count", dimension="count?"),
    "length_scale": row(od.length_scale, on_graph(), graph="graph", k="count", kind="word"),
    "smooth": row(od.smooth, on_graph(f=np.ones(M)), graph="graph", f="values", k="count"),
    "committor": row(od.committor, on_op(**ENDS), op="operator", A="samples", B="samples", continuous="-"),
    "reactive_flux": row(od.reactive_flux, on_op(**ENDS), op="operator", A="samples", B="samples"),
    "first_passage_time": row(od.first_passage_time, on_op(targets=[0]), op="operator", targets="samples",
                              continuous="-"),
    "expected_occupancy": row(od.expected_occupancy, on_op(start=1, targets=[0]), op="operator", start="samples",
                              targets="samples", continuous="-"),
    "fate_probabilities": row(od.fate_probabilities, on_op(terminal=[[0], [1]]), op="operator", terminal="-",
                              continuous="-"),
    "stationary": row(od.stationary, on_op(), op="operator", density="-"),
    "terminal_sets": row(od.terminal_sets, lambda: {"terminal": [[0], [1]], "m": M}, terminal="kernel", m="count"),
    "local_moments": row(od.local_moments, on_op(), op="operator"),
    "velocity": row(od.velocity, on_op(), op="operator", kind="word", basis="-", jacobian="-", coordinates="-"),
    "mean_curvature": row(od.mean_curvature, on_graph(eps=0.3), graph="graph", eps="positive", noise="positive values",
                          density="-"),
    "eigenbasis": row(od.eigenbasis, on_graph(eps=0.3, n_functions=3), graph="graph", eps="positive",
                      n_functions="count", density="-", bandwidth="-"),
    "smooth_basis": row(od.smooth_basis, on_graph(n_functions=3), graph="graph", n_functions="count", volumes="-",
                        bandwidth="-", dimension="count?"),
    "geodesic_order": row(od.geodesic_order, on_graph(start=0), graph="graph", start="-"),
    "threshold_graph": row(od.threshold_graph, lambda: {"X": X()}, X="points", k="count", rule="word",
                           delta="factor"),
    "cyclic_hint": row(od.cyclic_hint, lambda: {"X": X(), "n_points": 20, "n_subsets": 2}, X="points",
                       n_points="count", n_subsets="count", random_state="-"),
    "strang": row(od.strang, on_kernel(eps=0.3), kernel="kernel", graph="graph", eps="positive", split="-",
                  density="-", alpha="number", weight="positive values?"),
    "richardson": row(od.richardson, on_kernel(eps=0.3), kernel="kernel", graph="graph", eps="positive", scheme="-",
                      density="-", options="-"),
    "tuning.p_max": row(tuning.p_max, on_op(), op="operator"),
    "tuning.resolution": row(tuning.resolution, on_kernel(eps=0.3), kernel="kernel", graph="graph", eps="positive",
                             density="-", alpha="number", random_state="-"),
    "tuning.semigroup_error": row(tuning.semigroup_error, on_kernel(eps=0.3), kernel="kernel", graph="graph",
                                  eps="positive", density="-", alpha="number", n_probes="count", random_state="-"),
    "tuning.choose_eps": row(tuning.choose_eps, on_kernel(), kernel="kernel", graph="graph", density="-",
                             alpha="number", p_limit="share", resolution_limit="share", random_state="-"),
    "tuning.peclet": row(tuning.peclet, lambda: {"eps": 0.1, "speed": 1.0, "noise": 1.0}, eps="positive",
                         speed="-", noise="-"),
    "tuning.forward_bias": row(tuning.forward_bias, lambda: {"eps": 0.1, "speed": 1.0, "noise": 1.0}, eps="positive",
                               speed="-", noise="-", steepness="-"),
    "tuning.speed_for_bias": row(tuning.speed_for_bias, lambda: {"bias": 0.6, "eps": 0.1, "noise": 1.0}, bias="share",
                                 eps="positive", noise="-"),
    "tuning.rescale_time": row(tuning.rescale_time, lambda: {"factor": 2.0, "eps": 0.1, "speed": 1.0, "noise": 1.0},
                               factor="positive", eps="positive", speed="-", noise="-"),
    "tuning.radius": row(tuning.radius, lambda: {"dimension": 2, "mass": 0.9, "scale": 1.0}, dimension="count",
                         mass="share", scale="-"),
    "tuning.rate": row(tuning.rate, lambda: {"m": 100, "dimension": 2}, m="positive", dimension="count",
                       schedule="word"),
}  # fmt: skip


def cases() -> Iterator[tuple[str, str, Any]]:
    """(function, parameter, bad value)."""
    for name, (_, _, kinds) in TABLE.items():
        for parameter, kind in kinds.items():
            for value in KINDS.get(kind.removesuffix("?"), []):
                if not (value is None and kind.endswith("?")):
                    yield name, parameter, value


def outcome(name: str, parameter: str, value: Any) -> tuple[str, str]:
    """What comes of a bad value: "refused" in words, "cryptic" or "accepted", and what was said."""
    function, given, _ = TABLE[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**given() | {parameter: value})
    except (ValueError, od.MissingExtraError) as error:
        words = str(error)
        in_words = len(words.split()) > 3 and not any(sign in words for sign in ("broadcast", "astype", "operand"))
        return ("refused" if in_words else "cryptic"), words
    except Exception as error:
        return "cryptic", f"{type(error).__name__}: {error}"
    return "accepted", ""
