from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import plot
from ordiff.model import Profile


@pytest.fixture(scope="module")
def fitted():
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    model = od.SnapshotSDE(data.start, max_iter=40, random_state=0)
    with _quiet():
        return data, model.fit(data.X, data.times)


def _quiet():
    import warnings

    return warnings.catch_warnings(action="ignore", category=od.OrdiffWarning)


def rendered(ax) -> bytes:
    from io import BytesIO

    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = BytesIO()
    FigureCanvasAgg(ax.figure).print_png(file)
    return file.getvalue()


def test_every_picture_of_a_model_is_drawn_and_labelled(fitted):
    data, model = fitted
    made = [
        plot.field(model, "noise", label="ρ"),
        plot.field(model, data.times, label="time (h)"),
        plot.drift(model, length="µm", time="h"),
        plot.drift(model, kind="streamlines"),
        plot.landscape(model),
        plot.noise(model, truth=data.noise, length="µm", time="h"),
        plot.history(model),
        plot.truth(data.ordering_at(data.X), model.ordering_, std=model.ordering_std_, name="l"),
        plot.profile(Profile(np.array([1.0, 1.4, 2.0]), np.array([3.0, 0.0, 4.0]), 1.4, (1.1, 1.7)), truth=2**0.5),
    ]
    for ax in made:
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert rendered(ax).startswith(b"\x89PNG")
    assert made[5].get_ylabel() == "noise ρ (µm/√h)"


def test_an_operator_is_drawn_by_its_velocity(fitted):
    data, _ = fitted
    graph = od.NeighborGraph.build(data.X, k=100)
    op = od.Kernel(od.Ordering(data.ordering), noise=data.noise).operator(graph, 0.05, density="balanced")
    ax = plot.drift(op)
    arrows = ax.collections[-1]
    at = np.asarray(arrows.XY)
    towards = -(np.stack([arrows.U, arrows.V], 1) * at).sum(axis=1)
    assert (towards > 0).mean() > 0.8  # the process runs to the origin
    assert plot.field(op, data.ordering) is not None


def test_more_than_two_coordinates_are_drawn_by_principal_components(rng):
    X = rng.normal(size=(200, 5)) * [0.1, 3.0, 1.0, 0.1, 0.1]
    place = plot.Embedding.of(X)
    Y = place.points(X)
    np.testing.assert_allclose(np.abs(np.corrcoef(Y[:, 0], X[:, 1])[0, 1]), 1, atol=0.01)
    np.testing.assert_allclose(place.vectors(X - X.mean(0)), Y)
    assert place.names[0].startswith("PC 1 (8")


def test_one_coordinate_is_enough(rng):
    ax = plot.field(rng.normal(size=(50, 1)), np.arange(50.0))
    assert ax.get_xlabel() == "$x_1$"


def test_values_must_fit_the_samples(fitted):
    with pytest.raises(ValueError, match=r"shape \(300,\)"):
        plot.field(fitted[1], np.zeros(4))
    with pytest.raises(ValueError, match="kind"):
        plot.drift(fitted[1], kind="swirls")
