"""Runs in the peers' environment: python _peer_worker.py TASK input.npz output.npz.

TASK is the name of a function below, which takes the arrays of the input file and returns those of the output file.
Only what each package offers is used: its neighbour search, and its operator from the distances that it found.

    pyDiffMap   K = exp(−d²/4ε), L = (P − I)/ε ≈ Δ;  the pattern is symmetrised by the package
    datafold    K = exp(−d²/2ε), Δ ≈ 2(P − I)/ε

ε is given as that of exp(−d²/2ε) throughout, so pyDiffMap's own is half of it. α = 1, and the density is each
package's own estimate (the row sums of K).
"""

from __future__ import annotations

import sys
import time
import warnings
from importlib.metadata import version

import numpy as np
from datafold.pcfold.distance import ScipyKdTreeDist, SklearnKNN
from datafold.pcfold.kernels import DmapKernelFixed, GaussianKernel
from pydiffmap.diffusion_map import DiffusionMap
from pydiffmap.kernel import Kernel
from scipy.sparse import csr_matrix
from scipy.spatial.distance import pdist

warnings.simplefilter("ignore")


class KnownDistances(Kernel):
    """pyDiffMap's kernel on distances that it found before (its `fit` without the search)."""

    def __init__(self, distances, epsilon):
        super().__init__(epsilon=epsilon)
        self.known = distances.copy()  # compute() overwrites it

    def fit(self, X):
        self.data, self.bandwidths, self.scaled_dists = X, None, self.known
        return self.choose_optimal_epsilon()


def pydiffmap_search(X, k):
    return Kernel(k=k + 1, epsilon=1.0, neighbor_params={"n_jobs": -1}).fit(X).scaled_dists


def pydiffmap_builder(X, distances, eps):
    """A function that builds the generator, with everything before it done."""
    model = DiffusionMap(KnownDistances(distances, eps / 2), alpha=1.0)
    return lambda: model.construct_Lmat(X).L


def datafold_builder(distances, eps, symmetric):
    """A function that builds the Markov matrix; a kNN pattern is not symmetric, a cut-off's is."""
    distance = ScipyKdTreeDist(cut_off=1.0, metric="sqeuclidean") if symmetric else SklearnKNN("sqeuclidean", k=2)
    kernel = DmapKernelFixed(GaussianKernel(epsilon=eps, distance=distance), alpha=1.0, symmetrize_kernel=False)
    return lambda: kernel.evaluate(distances, is_pdist=True)


def pydiffmap(X, k, f, eps):
    """Δf for every ε, and the neighbours per point."""
    distances = pydiffmap_search(X, int(k))
    generators = (pydiffmap_builder(X, distances, float(e))() for e in eps)
    results = [(L @ f, L.nnz / len(X) - 1) for L in generators]
    return {"laplacian": np.array([r[0] for r in results]), "neighbors": results[0][1]}


def _datafold(distance, X, f, eps, symmetric):
    distances = distance(X)
    results = [2 * (datafold_builder(distances, float(e), symmetric)() @ f - f) / e for e in eps]
    return {"laplacian": np.array(results), "neighbors": distances.nnz / len(X) - 1}


def datafold_knn(X, k, f, eps):
    return _datafold(SklearnKNN("sqeuclidean", k=int(k) + 1, n_jobs=-1), X, f, eps, symmetric=False)


def datafold_cut_off(X, k, f, eps):
    """The cut-off at which points have k others within it on average."""
    radius = float(np.quantile(pdist(X), k / (len(X) - 1)))
    return _datafold(ScipyKdTreeDist(cut_off=radius, metric="sqeuclidean"), X, f, eps, symmetric=True)


def builds(X, eps, data, indices, indptr):
    """Seconds of both operator builds from the same squared distances, second run of two."""
    squared = csr_matrix((data, indices, indptr))
    distances = csr_matrix((np.sqrt(data), indices, indptr))
    seconds = {}
    for name in ("pydiffmap", "datafold") * 2:
        build = (
            pydiffmap_builder(X, distances, float(eps))
            if name == "pydiffmap"
            else datafold_builder(squared, float(eps), symmetric=False)
        )
        start = time.perf_counter()
        build()
        seconds[name] = time.perf_counter() - start
    return seconds


def versions():
    return {name: version(name) for name in ("datafold", "pydiffmap", "numpy", "scipy", "scikit-learn")}


if __name__ == "__main__":
    task, source, target = sys.argv[1:]
    with np.load(source) as arrays:
        result = globals()[task](**arrays)
    np.savez(target, **result)
