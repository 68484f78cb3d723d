from __future__ import annotations

from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ordiff import plot
from ordiff.learning.uncertainty import LikelihoodProfile


def rendered(ax) -> bytes:
    file = BytesIO()
    FigureCanvasAgg(ax.figure).print_png(file)
    return file.getvalue()


def test_every_picture_of_a_model_is_drawn_and_labelled(fitted):
    data, model = fitted
    likelihood = LikelihoodProfile(np.array([1.0, 1.4, 2.0]), np.array([3.0, 0.0, 4.0]), 1.4, (1.1, 1.7))
    made = [
        plot.field(model, "noise", label="ρ"),
        plot.field(model, data.times, label="time (h)"),
        plot.drift(model, length="µm", time="h"),
        plot.drift(model, kind="streamlines"),
        plot.landscape(model),
        plot.noise(model, truth=data.noise, length="µm", time="h"),
        plot.history(model),
        plot.truth(data.ordering_at(data.X), model.ordering_, std=model.ordering_std_, name="l"),
        plot.profile(likelihood, truth=2**0.5),
    ]
    for ax in made:
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert rendered(ax).startswith(b"\x89PNG")
    assert made[5].get_ylabel() == "noise ρ (µm/√h)"
