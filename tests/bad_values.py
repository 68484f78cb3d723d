"""Every parameter of every public function, and values that it must refuse.

`KINDS` has the bad values of each kind of parameter, `TABLE` the kind of each parameter, with a call that is right. A
new parameter is covered by a word in its row. A kind that ends in "?" may be None; one that begins with "no bad value:"
says why there is none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import ordiff as od
from ordiff import tuning
from small_model import small_model

M = 60  # samples of the graph
MASKED = np.ma.masked_array(np.ones(M), np.arange(M) == 3)
DATES = np.full(M, np.datetime64("2020-01-01"))
NOT_A_NUMBER = [None, "x", np.nan, np.inf, -np.inf, 1j, True, [1.0, 2.0], {}, np.datetime64("2020-01-01"), object()]
NOT_NUMBERS = ["x", MASKED, DATES, np.ones(M) * 1j, np.full(M, np.nan), np.r_[np.inf, np.ones(M - 1)], {},
               [[1.0], [1.0, 2.0]], object()]  # fmt: skip
NOT_VALUES = [*NOT_NUMBERS, np.ones(M - 1), np.ones((M, 2, 2))]

KINDS: dict[str, list[Any]] = {
    "positive": [*NOT_A_NUMBER, 0, -1.0, -0.0],
    "number": NOT_A_NUMBER,
    "not negative": [*NOT_A_NUMBER, -1.0],
    "share": [*NOT_A_NUMBER, 0, 1, -0.5, 1.5],
    "count": [*NOT_A_NUMBER, 0, -1, 1.5, 2.0, "2", np.array([3])],
    "steps": [*NOT_A_NUMBER, -1, 1.5, 2.0, "2", np.array([3])],
    "factor": [*NOT_A_NUMBER, 0, -1.0, 1e200],
    "recall": [*NOT_A_NUMBER, 0.5, 1.5],
    "word": ["other", "", None, 3, np.nan, True, ["a"], np.array(["a", "b"]), {}, object()],
    "values": [*NOT_VALUES, None, 1.0],
    "value or values": [*NOT_VALUES, None],
    "positive values": [*NOT_VALUES, None, 0.0, -1.0, np.zeros(M), np.r_[-1.0, np.ones(M - 1)]],
    "points": ["x", None, 3.0, np.ones(M), np.full((M, 2), np.nan), np.full((M, 2), 1e200), np.ones((M, 2)) * 1j,
               np.ma.masked_array(np.ones((M, 2)), np.arange(2 * M).reshape(M, 2) == 3), np.ones((0, 2)),
               np.full((M, 2), np.datetime64("2020-01-01")), np.ones((M, 0)), {}, object()],
    "index": ["x", None, -1, M, 1.5, [], np.nan, 1j, {}, object(), [0, 1], MASKED, True],
    "samples": ["x", None, -1, M, 1.5, [], np.nan, 1j, {}, object(), [0, M], MASKED, np.zeros(M, bool),
                np.ones(3, bool)],
    "graph": [None, 3, "x", np.ones((M, 2)), {}, object()],
    "operator": [None, 3, "x", np.eye(M), {}, object()],
    "kernel": [None, 3, "x", {}, object()],
    "function": [None, 3, "x", np.ones(3)],
    "flag": ["no", "", None, 2, 0.0, np.nan, [], [True], np.ones(2, bool), object()],
    "seed": ["x", "", 1.5, -1, np.nan, True, 1j, {}, [-1], [0.5], np.ones(2), MASKED, object()],
    "numbers": [*NOT_NUMBERS, None, np.nan, np.inf],
    "positive numbers": [*NOT_NUMBERS, None, np.nan, np.inf, 0.0, -1.0, np.zeros(3), -np.ones(M)],
    "density": [*NOT_VALUES, "", "other", 0.0, -1.0, np.nan, np.zeros(M), np.r_[-1.0, np.ones(M - 1)]],
    "sample density": ["", "other", None, 0.0, -1.0, np.nan, np.zeros(M), -np.ones(M), MASKED, DATES, 1j, {}, object()],
    "time density": ["", "other", 3, np.ones(3), {}, object(), True],
    "scale": [*NOT_VALUES, None, "", "other", 0.0, -1.0, np.nan, np.zeros(M)],
    "vectors": [*NOT_VALUES, 1.0, np.ones((M, 3)), np.ones(M), np.full((M, 2), np.inf)],
    "frame": [*NOT_VALUES, 1.0, np.ones((M, 2)), np.ones((M, 3, 2)), np.ones((M, 2, 3)), np.zeros((M, 2, 1)),
              np.ones((M, 2, 2)), np.full((M, 2, 1), np.nan)],
    "tensors": [*NOT_VALUES, 1.0, np.ones((M, 2)), np.ones((M, 3, 3)), np.zeros((M, 2, 2)),
                np.tile(-np.eye(2), (M, 1, 1)), np.tile([[1.0, 0.5], [0.0, 1.0]], (M, 1, 1))],
    "orderings": [*NOT_VALUES, 1.0, [np.ones(M)], [od.Ordering(np.ones(M)), "x"], od.Ordering(np.ones(M - 1)), [None]],
    "rows": ["x", None, 1.0, np.ones(M), np.ones((2, M - 1)), np.full((2, M), np.nan), np.ones((2, M)) * 1j,
             np.ones((0, M)), {}, object(), [[1.0], [1.0, 2.0]]],
    "shares": ["x", 1.0, np.ones(M), np.ones((2, M - 1)), np.full((2, M), np.nan), -np.ones((2, M)), np.zeros((2, M)),
               {}, object()],
    "labels": ["x", None, 1.0, np.ones(M), np.full(M, 2), np.full(M, -1), np.zeros(M - 1, int), ["a"] * M, {},
               object()],
    "terminal": [None, 3, "x", {}, [], [[0], [0]], [[0], [M]], {"a": [M]}, {"a": []}, {"a": [0.5]}, np.zeros(M, bool),
                 [np.zeros(M, bool)], [np.nan] * M, object(), [None, [1]], {"a": MASKED}],
    "start": ["x", None, -1, M, np.nan, 1j, {}, object(), [0, M], MASKED, np.zeros(M), np.full(2, np.nan),
              [1e9, 1e9], [1.0, 2.0, 3.0], np.ones((2, 2)), DATES],
    "number of fits": [*NOT_A_NUMBER, 1, -1, 1.5, "2"],
    "fates": [None, 3, "x", {}, [], [[0], [0]], [[0], [80]], {"a": [80]}, {"a": []}, object(), {"a": 0.5}],
    "tangents": [3, "x", {}, np.ones((M, 2)), object()],
    "times": [*NOT_VALUES, 1.0, -np.ones(M), np.full((M, 2), [1.0, 0.5]), np.ones((M, 3)), np.zeros(M)],
    "weights": [*NOT_VALUES, 1.0, -np.ones(M), np.zeros(M)],
    "functions": [*NOT_VALUES, None, 1.0],
    "grid": [*NOT_NUMBERS, [], [0.0, 1.0], [-1.0], 1j],
    "path": [3, 1.5, np.nan, [], {}, b"x", np.ones(3), object()],
    "two words": ["xy", 3, ["x"], ["x", 1], [None, "x"], {"x": 1, "y": 2}, object(), np.nan, np.ones(2)],
    "text": [None, 3, np.nan, ["m"], {}, object()],
    "matrix": ["x", None, 1.0, np.ones(2), np.ones((2, 3)), np.full((2, 2), np.nan), np.ones((2, 2)) * 1j, {}],
    "covariance": ["x", None, 1.0, np.ones((2, 3)), np.full((2, 2), np.nan), -np.eye(2), [[1.0, 1.0], [0.0, 1.0]], {}],
    "point": ["x", None, np.nan, [np.nan, 1.0], 1j, {}, object(), np.ones((2, 2, 2))],
    "moments of time": ["x", None, np.nan, [-1.0, 1.0], 1j, {}, object(), [], np.ones((2, 2))],
    "weights of one": ["x", [1.0, 2.0], [-1.0], [0.0], [np.nan], {}, object()],
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
def tangents() -> od.TangentSpaces:
    return od.TangentSpaces.fit(graph(), k=8, dimension=1)


@cache
def anisotropic() -> od.Kernel:
    return od.Kernel(od.Ordering(X()[:, 0]), anisotropy=np.tile(np.diag([1.0, 2.0]), (M, 1, 1)))


@cache
def op() -> od.MarkovOperator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        return kernel().operator(graph(), 0.3)


def pattern() -> dict[str, Any]:
    return {"indptr": graph().indptr, "indices": graph().indices, "sqdist": graph().sqdist, "X": X()}


@cache
def model() -> od.SnapshotSDE:
    return small_model()


def on_model() -> dict[str, Any]:
    return {"X": model().samples_[:M], "times": np.linspace(0.1, 1, M)}


def row(function: Any, given: Any = None, **kinds: str) -> tuple[Any, Any, dict[str, str]]:
    return function, given or dict, kinds


def on_graph(**more: Any) -> Any:
    return lambda: {"graph": graph(), **more}


def on_op(**more: Any) -> Any:
    return lambda: {"op": op(), **more}


def on_kernel(**more: Any) -> Any:
    return lambda: {"kernel": kernel(), "graph": graph(), **more}


SPEED = {"speed": "value or values", "scale": "scale", "gradient": "vectors?"}
ENDS = {"A": [0], "B": [1]}

TABLE: dict[str, tuple[Any, Any, dict[str, str]]] = {
    "Compact": row(od.Compact, power="positive"),
    "DesignedStates": row(od.DesignedStates, spacing="positive", dimension="count?", n_neighbors="count",
                          max_states="count"),
    "SampleStates": row(od.SampleStates, density="sample density", dimension="count?", n_neighbors="count",
                        alpha="number"),
    "Smoothness": row(od.Smoothness, ordering="not negative", noise="not negative", rotation="not negative",
                      basis="count?", speed="word",
                      action="not negative"),
    "Solver": row(od.Solver, eps="positive", max_iter="count", tol="positive", n_starts="count"),
    "TimeDensity": row(od.TimeDensity, density="time density", horizon="positive?"),
    "Kernel": row(lambda **given: od.Kernel(**given).operator(graph(), 0.3), ordering="orderings?",
                  noise="positive values", noise_right="positive values?", beta="number", anisotropy="tensors?",
                  basis="no bad value: see the row with an anisotropy", normal_weight="positive", coupled="flag",
                  profile="word", dimension="count?"),
    "Kernel of an anisotropy": row(lambda **given: od.Kernel(**given).operator(graph(), 0.3),
                                   lambda: {"anisotropy": np.ones((M, 1, 1)), "basis": tangents().frames()},
                                   basis="frame"),
    "Kernel.operator": row(lambda **given: kernel().operator(**given), on_graph(eps=0.3), graph="graph",
                           eps="positive", density="density", alpha="number", weight="positive values?",
                           self_weight="positive"),
    "MarkovOperator": row(od.MarkovOperator, on_graph(data=1.0, eps=0.3, density=1.0), graph="graph", data="values",
                          eps="positive", density="positive values"),
    "NeighborGraph": row(od.NeighborGraph, pattern, indptr="values", indices="values", sqdist="values", X="points?"),
    "NeighborGraph.build": row(od.NeighborGraph.build, lambda: {"X": X(), "k": 5}, X="points", k="count?",
                               radius="no bad value: see the row with a radius", method="word", random_state="seed",
                               recall="recall"),
    "NeighborGraph.build radius": row(od.NeighborGraph.build, lambda: {"X": X(), "radius": 1.0}, radius="positive?"),
    "NeighborGraph.from_distances": row(od.NeighborGraph.from_distances, lambda: {"D": np.ones((3, 3)) - np.eye(3)},
                                        D="points", X="points?"),
    "NeighborGraph.radius": row(lambda **given: graph().radius(**given), lambda: {"k": 5}, k="count", pad="flag"),
    "NeighborGraph.nearest": row(lambda **given: graph().nearest(**given), lambda: {"k": 5}, k="count", pad="flag"),
    "NeighborGraph.geodesic": row(lambda **given: graph().geodesic(**given), lambda: {"sources": 0},
                                  sources="samples", weights="values?"),
    "Ordering": row(lambda **given: od.Kernel(od.Ordering(**given)).operator(graph(), 0.3),
                    lambda: {"values": X()[:, 0]}, values="values", **SPEED),
    "Ordering.times": row(lambda **given: od.Kernel(od.Ordering.times(**given)).operator(graph(), 0.3),
                          lambda: {"times": X()[:, 0]}, times="values", speed="value or values", gradient="vectors?"),
    "Ordering.local": row(lambda **given: od.Kernel(od.Ordering.local(**given)).operator(graph(), 0.3),
                          lambda: {"fn": lambda i, j: X()[j, 0] - X()[i, 0]}, fn="function", **SPEED),
    "Ordering.field": row(lambda **given: od.Kernel(od.Ordering.field(**given)).operator(graph(), 0.3),
                          lambda: {"V": X()}, V="points", tangents="tangents", speed="value or values", scale="scale"),
    "Ordering.cyclic": row(lambda **given: od.Kernel(od.Ordering.cyclic(**given)).operator(graph(), 0.3),
                           lambda: {"phase": X()[:, 0], "period": 1.0}, phase="values", period="positive", **SPEED),
    "Ordering.piecewise": row(lambda **given: od.Kernel(od.Ordering.piecewise(**given)).operator(graph(), 0.3),
                              lambda: {"labels": np.zeros(M, int), "values": X().T}, labels="labels", values="rows",
                              **SPEED),
    "Ordering.partial": row(lambda **given: od.Kernel(od.Ordering.partial(**given)).operator(graph(), 0.3),
                            lambda: {"values": X().T}, values="rows", **SPEED),
    "Ordering.lineages": row(lambda **given: od.Kernel(od.Ordering.lineages(**given)).operator(graph(), 0.3),
                             lambda: {"distances": abs(X().T)}, distances="rows", weights="shares", speed="number",
                             scale="scale"),
    "MarkovOperator.backward": row(lambda **given: op().backward(**given), lambda: {"f": X()}, f="functions",
                                   steps="steps"),
    "MarkovOperator.forward": row(lambda **given: op().forward(**given), lambda: {"mass": X()}, mass="functions",
                                  steps="steps"),
    "MarkovOperator.generator": row(lambda **given: op().generator(**given), f="functions"),
    "MarkovOperator.adjoint": row(lambda **given: op().adjoint(**given), f="functions"),
    "TangentSpaces.basis": row(lambda **given: tangents().basis(**given), i="index"),
    "TangentSpaces.frames": row(lambda **given: tangents().frames(**given), dimension="count?"),
    "TangentSpaces.project": row(lambda **given: tangents().project(**given), V="vectors"),
    "TangentSpaces.gradient": row(lambda **given: tangents().gradient(**given), f="values"),
    "TangentSpaces.gradient_norm": row(lambda **given: tangents().gradient_norm(**given), f="values"),
    "SnapshotSDE.fit": row(lambda **given: od.SnapshotSDE([0.0, 0.0]).fit(**given),
                           lambda: {"X": X(), "times": np.linspace(0.1, 1, M)}, X="points", times="times",
                           sample_weight="weights", checkpoint="path", names="two words"),
    "SnapshotSDE.predict": row(lambda **given: model().predict(**given), X="points"),
    "SnapshotSDE.predict_noise": row(lambda **given: model().predict_noise(**given), X="points"),
    "SnapshotSDE.predict_drift": row(lambda **given: model().predict_drift(**given), X="points"),
    "SnapshotSDE.predict_rotation": row(lambda **given: model().predict_rotation(**given), X="points"),
    "SnapshotSDE.score_samples": row(lambda **given: model().score_samples(**given), on_model, X="points",
                                     times="times"),
    "SnapshotSDE.score": row(lambda **given: model().score(**given), on_model, X="points", times="times",
                             sample_weight="weights"),
    "SnapshotSDE.simulate": row(lambda **given: model().simulate(**given), lambda: {"n": 2}, n="count",
                                horizon="positive?", random_state="seed"),
    "SnapshotSDE.profile": row(lambda **given: model().profile(**given), param="word", grid="grid"),
    "SnapshotSDE.uncertainty": row(lambda **given: model().uncertainty(**given), n_boot="number of fits"),
    "SnapshotSDE.fate_probabilities": row(lambda **given: model().fate_probabilities(**given),
                                          lambda: {"terminal": [[0], [79]]}, terminal="fates", X="points?",
                                          continuous="flag"),
    "SnapshotSDE.summary": row(lambda **given: model().summary(**given), length="text", time="text",
                               sample_numbers="values?"),
    "SnapshotSDE.save": row(lambda **given: model().save(**given), path="path"),
    "load": row(od.load, path="path"),
    "datasets.ornstein_uhlenbeck": row(od.datasets.ornstein_uhlenbeck, m="count", random_state="seed"),
    "datasets.nonlinear": row(od.datasets.nonlinear, lambda: {"m": 20}, m="count", random_state="seed", lift="count?",
                              lift_noise="not negative"),
    "datasets.well_ou": row(od.datasets.well_ou, lambda: {"m": 20}, m="count", random_state="seed", dimension="count"),
    "datasets.tensor_ou": row(od.datasets.tensor_ou, lambda: {"m": 20}, m="count", random_state="seed", angle="number"),
    "datasets.torus": row(od.datasets.torus, lambda: {"side": 10}, side="count", anisotropic="flag"),
    "datasets.spiral": row(od.datasets.spiral, side="count"),
    "datasets.linear": row(od.datasets.linear,
                           lambda: {"matrix": -np.eye(2), "covariance": np.eye(2), "start": [0.0, 0.0], "times": 1.0,
                                    "m": 20},
                           matrix="matrix", covariance="covariance", start="point", times="moments of time", m="count",
                           random_state="seed"),
    "datasets.simulate": row(od.datasets.simulate,
                             lambda: {"drift": lambda x: -x, "noise": 1.0, "start": [0.0, 0.0], "times": [0.1, 0.2]},
                             drift="function", noise="not negative", start="point", times="moments of time",
                             step="positive?", project="function?", random_state="seed"),
    "States.design": row(od.States.design, lambda: {"X": X(), "spacing": 0.5}, X="points", spacing="positive?",
                         start="points?", start_weights="no bad value: see the row with a start", radius="positive?",
                         dimension="count?", random_state="seed"),
    "States.design of a start": row(od.States.design, lambda: {"X": X(), "spacing": 0.5, "start": X()[0]},
                                    start_weights="weights of one"),
    "TangentSpaces.fit": row(od.TangentSpaces.fit, on_graph(), graph="graph", k="count", variance="share",
                             dimension="count?"),
    "balanced_density": row(od.balanced_density, on_graph(), graph="graph", k="count?", dimension="count?",
                            iterations="count"),
    "kernel_density": row(od.kernel_density, on_graph(), graph="graph", k="count", bandwidth="positive?",
                          dimension="count?"),
    "knn_density": row(od.knn_density, on_graph(), graph="graph", k="count", dimension="count?"),
    "length_scale": row(od.length_scale, on_graph(), graph="graph", k="count", kind="word"),
    "smooth": row(od.smooth, on_graph(f=np.ones(M)), graph="graph", f="values", k="count"),
    "committor": row(od.committor, on_op(**ENDS), op="operator", A="samples", B="samples", continuous="flag"),
    "reactive_flux": row(od.reactive_flux, on_op(**ENDS), op="operator", A="samples", B="samples"),
    "first_passage_time": row(od.first_passage_time, on_op(targets=[0]), op="operator", targets="samples",
                              continuous="flag"),
    "expected_occupancy": row(od.expected_occupancy, on_op(start=1, targets=[0]), op="operator", start="samples",
                              targets="samples", continuous="flag"),
    "fate_probabilities": row(od.fate_probabilities, on_op(terminal=[[0], [1]]), op="operator", terminal="terminal",
                              continuous="flag"),
    "stationary": row(od.stationary, on_op(), op="operator", density="flag"),
    "terminal_sets": row(od.terminal_sets, lambda: {"terminal": [[0], [1]], "m": M}, terminal="terminal", m="count"),
    "local_moments": row(od.local_moments, on_op(), op="operator"),
    "velocity": row(od.velocity, on_op(), op="operator", kind="word",
                    basis="no bad value: see the projected one", jacobian="no bad value: see the intrinsic one",
                    coordinates="no bad value: see the intrinsic one"),
    "velocity projected": row(od.velocity, on_op(kind="projected"), basis="frame"),
    "velocity intrinsic": row(od.velocity, on_op(kind="intrinsic"), jacobian="frame", coordinates="points"),
    "mean_curvature": row(od.mean_curvature, on_graph(eps=0.3), graph="graph", eps="positive", noise="positive values",
                          density="density"),
    "eigenbasis": row(od.eigenbasis, on_graph(eps=0.3, n_functions=3), graph="graph", eps="positive",
                      n_functions="count", density="density", bandwidth="density"),
    "smooth_basis": row(od.smooth_basis, on_graph(n_functions=3), graph="graph", n_functions="count",
                        volumes="positive values?", bandwidth="positive values?", dimension="count?"),
    "geodesic_order": row(od.geodesic_order, on_graph(start=0), graph="graph", start="start"),
    "threshold_graph": row(od.threshold_graph, lambda: {"X": X()}, X="points", k="count", rule="word",
                           delta="factor"),
    "cyclic_hint": row(od.cyclic_hint, lambda: {"X": X(), "n_points": 20, "n_subsets": 2}, X="points",
                       n_points="count", n_subsets="count", random_state="seed"),
    "strang": row(od.strang, lambda: {"kernel": anisotropic(), "graph": graph(), "eps": 0.3}, kernel="kernel",
                  graph="graph", eps="positive", split="share", density="density", alpha="number",
                  weight="positive values?"),
    "richardson": row(od.richardson, on_kernel(eps=0.3), kernel="kernel", graph="graph", eps="positive",
                      scheme="function", density="density",
                      options="no bad value: the scheme refuses those it does not know"),
    "tuning.p_max": row(tuning.p_max, on_op(), op="operator"),
    "tuning.resolution": row(tuning.resolution, on_kernel(eps=0.3), kernel="kernel", graph="graph", eps="positive",
                             density="density", alpha="number", random_state="seed"),
    "tuning.semigroup_error": row(tuning.semigroup_error, on_kernel(eps=0.3), kernel="kernel", graph="graph",
                                  eps="positive", density="density", alpha="number", n_probes="count",
                                  random_state="seed"),
    "tuning.choose_eps": row(tuning.choose_eps, on_kernel(), kernel="kernel", graph="graph", density="density",
                             alpha="number", p_limit="share", resolution_limit="share", random_state="seed"),
    "tuning.peclet": row(tuning.peclet, lambda: {"eps": 0.1, "speed": 1.0, "noise": 1.0}, eps="positive",
                         speed="numbers", noise="positive numbers"),
    "tuning.forward_bias": row(tuning.forward_bias, lambda: {"eps": 0.1, "speed": 1.0, "noise": 1.0}, eps="positive",
                               speed="numbers", noise="positive numbers", steepness="numbers"),
    "tuning.speed_for_bias": row(tuning.speed_for_bias, lambda: {"bias": 0.6, "eps": 0.1, "noise": 1.0}, bias="share",
                                 eps="positive", noise="positive numbers"),
    "tuning.rescale_time": row(tuning.rescale_time, lambda: {"factor": 2.0, "eps": 0.1, "speed": 1.0, "noise": 1.0},
                               factor="positive", eps="positive", speed="numbers", noise="positive numbers"),
    "tuning.radius": row(tuning.radius, lambda: {"dimension": 2, "mass": 0.9, "scale": 1.0}, dimension="count",
                         mass="share", scale="positive numbers"),
    "tuning.rate": row(tuning.rate, lambda: {"m": 100, "dimension": 2}, m="positive", dimension="count",
                       schedule="word"),
}  # fmt: skip


def cases() -> Iterator[tuple[str, str, Any]]:
    """(function, parameter, bad value)."""
    for name, (_, _, kinds) in TABLE.items():
        for parameter, kind in kinds.items():
            for value in [] if kind.startswith("no bad value: ") else KINDS[kind.removesuffix("?")]:
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
