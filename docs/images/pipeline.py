"""Draws pipeline.png, the picture of docs/design.md: `python docs/images/pipeline.py`."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

# light tints of Okabe and Ito's blue, orange and green: safe for colour-blind readers, and different in grey
BLUE, ORANGE, GREEN, WHITE = "#cfe6f5", "#fbe3b4", "#bfe5d6", "#ffffff"
EDGE = "#333333"
HEIGHT = 1.5

# name: (left, bottom, width, colour, title, lines)
TOP, BOTTOM = 4.0, 0.9
BOXES = {
    "data": (0.0, 2.45, 1.8, WHITE, "data", "points X, and an\nordering or times"),
    "graph": (2.5, TOP, 2.0, BLUE, "graph/", "search, pattern,\nlayout in memory"),
    "kernel": (5.2, TOP, 2.3, BLUE, "kernel/", "ordering · metric\nbandwidth · profile"),
    "operator": (8.2, TOP, 2.2, BLUE, "operator", "P, and its generator\nL = (P − I)/ε"),
    "questions": (11.1, TOP, 2.2, GREEN, "questions", "fields · spectral\npassage · tuning"),
    "states": (2.5, BOTTOM, 2.0, ORANGE, "discretise", "states, step,\nobservation"),
    "objective": (5.2, BOTTOM, 2.1, ORANGE, "likelihood", "transition, slices,\ngradient, scores"),
    "optimise": (8.0, BOTTOM, 1.7, ORANGE, "optimise", "smoothing,\nmarginal"),
    "model": (10.4, BOTTOM, 1.9, ORANGE, "result", "ordering, noise,\ndrift"),
    "trust": (13.0, BOTTOM, 1.6, GREEN, "model", "profile,\nuncertainty"),
}


def draw() -> Figure:
    figure = Figure(figsize=(11.6, 4.55), facecolor="white")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(-0.15, 14.75), ylim=(0.2, 6.05), aspect="equal")
    ax.axis("off")
    for left, bottom, width, colour, title, lines in BOXES.values():
        box = FancyBboxPatch(
            (left, bottom), width, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12", fc=colour, ec=EDGE, lw=1.2
        )
        ax.add_patch(box)
        middle = left + width / 2
        ax.text(middle, bottom + 1.14, title, ha="center", va="center", fontsize=12, weight="bold")
        ax.text(middle, bottom + 0.5, lines, ha="center", va="center", fontsize=9.6, linespacing=1.35)
    for one, other in [("graph", "kernel"), ("kernel", "operator"), ("operator", "questions"), ("states", "objective"),
                       ("optimise", "model"), ("model", "trust")]:  # fmt: skip
        arrow(ax, right(one), left_of(other))
    # there and back: a value and its gradient for every set of coefficients
    (x, y), (u, _) = right("objective"), left_of("optimise")
    arrow(ax, (x, y + 0.16), (u, y + 0.16))
    arrow(ax, (u, y - 0.16), (x, y - 0.16))
    x, y = right("data")
    arrow(ax, (x, y + 0.3), left_of("graph"))
    arrow(ax, (x, y - 0.3), left_of("states"))
    left, bottom, width, *_ = BOXES["model"]
    arrow(ax, (left + 0.3, bottom + HEIGHT), (9.6, TOP), "arc3,rad=0.1")
    ax.text(10.45, 3.2, "model.operator_", fontsize=9.8, family="monospace", ha="left", va="center")
    ax.text(2.5, 5.8, "an ordering is given", fontsize=11.5, style="italic", va="center")
    ax.text(2.5, 0.6, "an ordering is learned from snapshots", fontsize=11.5, style="italic", va="center")
    return figure


def arrow(ax, start, end, style="arc3"):  # type: ignore[no-untyped-def]
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=14, lw=1.5, color=EDGE, shrinkA=2, shrinkB=2,
            connectionstyle=style,
        )
    )  # fmt: skip


def right(name: str) -> tuple[float, float]:
    left, bottom, width, *_ = BOXES[name]
    return left + width, bottom + HEIGHT / 2


def left_of(name: str) -> tuple[float, float]:
    left, bottom, *_ = BOXES[name]
    return left, bottom + HEIGHT / 2


if __name__ == "__main__":
    draw().savefig(Path(__file__).with_suffix(".png"), dpi=150, metadata={"Software": None})
