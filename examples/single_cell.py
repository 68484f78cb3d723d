"""iPSC cells on their way to the heart: landscape, noise, fates, and the prediction of a left-out day.

    python examples/single_cell.py TABLE [DIRECTORY]

TABLE is the table of Bargaje et al. (PNAS 2017) as in the CALISTA examples: genes as columns, and ``hours``. The
process is learned on the leading principal components from the 0 h cells. Then one time point is left out, the mass is
pushed forward to it, and the 1-Wasserstein distance to the left-out cells is compared with that of the time points
before and after, and of their optimal-transport interpolation.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import anndata
import numpy as np
import ot
import pandas as pd
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA

import ordiff as od
from ordiff import plot, single_cell

COMPONENTS = 3
SETTINGS = {"smoothness": od.Smoothness(basis=60)}


def read(path: str) -> anndata.AnnData:
    """Cells with their principal components and hours."""
    table = pd.read_csv(path)
    hours = table.pop("hours").to_numpy(float)
    genes = table.select_dtypes("number")
    adata = anndata.AnnData(genes.to_numpy(float), obs=pd.DataFrame({"hours": hours}, index=genes.index.astype(str)))
    adata.obsm["X_pca"] = PCA(COMPONENTS, random_state=0).fit_transform(adata.X)
    return adata


def plan(X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The optimal transport from X (with weights, or all alike) to Y, and what each way of it costs."""
    cost = cdist(X, Y)
    from_, to = np.full(len(X), 1 / len(X)) if weights is None else weights, np.full(len(Y), 1 / len(Y))
    return ot.emd(from_, to, cost, numItermax=1_000_000), cost


def wasserstein(X: np.ndarray, Y: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The 1-Wasserstein distance."""
    moved, cost = plan(X, Y, weights)
    return float((moved * cost).sum())


def predicted(model: od.SnapshotSDE, hours: float) -> np.ndarray:
    """The mass of the learned chain on its states at a time."""
    steps = hours / model.eps_
    mass = model.operator_.forward(model.states_.start, int(np.floor(steps)))
    mass = (1 - steps % 1) * mass + (steps % 1) * model.operator_.forward(mass)
    return mass / mass.sum()


def leave_out(adata: anndata.AnnData, hours: float) -> dict[str, float]:
    """Distances to the cells of a time that was not learned from."""
    X, times = adata.obsm["X_pca"], adata.obs["hours"].to_numpy()
    known = np.unique(times[times != hours])
    before, after = known[known < hours].max(), known[known > hours].min()
    truth, earlier, later = (X[times == time] for time in (hours, before, after))
    kept = times != hours
    model = od.SnapshotSDE(times[kept] == 0, **SETTINGS).fit(X[kept], times[kept])
    moved, _ = plan(earlier, later)
    i, j = np.nonzero(moved)
    share = (hours - before) / (after - before)
    return {
        "ordiff, mass pushed forward": wasserstein(model.states_.points, truth, predicted(model, hours)),
        f"cells of {before:g} h": wasserstein(earlier, truth),
        f"cells of {after:g} h": wasserstein(later, truth),
        "optimal transport between them": wasserstein(
            (1 - share) * earlier[i] + share * later[j], truth, moved[i, j] / moved.sum()
        ),
        "two halves of the truth": wasserstein(truth[::2], truth[1::2]),
    }


def main(path: str, directory: str = "single-cell") -> None:
    out = Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", od.OrdiffWarning)
    adata = read(path)
    model = single_cell.fit(adata, "hours", **SETTINGS)
    print(model.summary(time="h"))
    hours = adata.obs["hours"].to_numpy()
    print(f"Correlation of the ordering with the hours: {np.corrcoef(model.ordering_, hours)[0, 1]:.3f}")
    # the two fates: late cells at the two ends of what separates them
    late = hours >= 96
    axis = PCA(1).fit(model.samples_[late]).components_[0]
    along = model.samples_ @ axis
    low, high = np.quantile(along[late], [0.15, 0.85])
    fates = model.fate_probabilities({"one": late & (along < low), "other": late & (along > high)})
    for time in np.unique(hours):
        some = fates[hours == time, 1]
        print(f"{time:5g} h: probability of the second fate {some.mean():.2f}, spread {some.std():.2f}")
    for time in (60.0, 72.0):
        print(f"\nLeft out: {time:g} h. 1-Wasserstein distance to its cells")
        for name, distance in leave_out(adata, time).items():
            print(f"  {name:32s} {distance:6.2f}")
    figure = plot.require()(figsize=(15, 4.5), layout="constrained")
    axes = figure.subplots(1, 3)
    X = adata.obsm["X_pca"]
    for ax, values, title in zip(
        axes, (hours, model.ordering_, fates[:, 1]), ("hours", "learned ordering", "probability of the second fate"),
        strict=True,
    ):  # fmt: skip
        drawn = ax.scatter(X[:, 0], X[:, 1], c=values, s=6, cmap="viridis")
        figure.colorbar(drawn, ax=ax, label=title)
        ax.set(xlabel="first principal component", ylabel="second principal component", title=title)
    thin = slice(None, None, 8)
    axes[1].quiver(*X[thin, :2].T, *model.drift_[thin, :2].T, angles="xy", width=0.002, color="0.2")
    figure.savefig(out / "bargaje.png", dpi=120)
    print(f"\nWrote {out / 'bargaje.png'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
