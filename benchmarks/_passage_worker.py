"""Runs in a peer's environment: python _passage_worker.py TASK input.npz output.npz, as _peer_worker.py does.

    tmdmap      pyDiffMap's target measure diffusion map, K = exp(−d²/4ε), one transition matrix for each ε
    cellrank    CellRank's PseudotimeKernel on scanpy's neighbours, one transition matrix for each setting
    deeptime    the same questions of a small chain

Matrices come back as their CSR arrays, numbered. Each task imports what it needs: they live in different environments.
"""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import version

import numpy as np

warnings.simplefilter("ignore")


def _packed(matrices):
    parts = {}
    for number, matrix in enumerate(matrices):
        parts |= {f"{name}{number}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
    return parts


def tmdmap(X, k, eps, log_measure):
    """P for every ε; log_measure (m,) is the logarithm of the target measure at the samples."""
    from pydiffmap.diffusion_map import TMDmap
    from scipy.sparse import csr_matrix, identity

    measure = {x.tobytes(): float(np.exp(value)) for x, value in zip(X, log_measure - log_measure.max(), strict=True)}
    matrices = []
    for e in eps:
        model = TMDmap(
            alpha=1.0, k=int(k) + 1, epsilon=float(e), change_of_measure=lambda x: max(measure[x.tobytes()], 1e-300)
        )
        L = model.construct_Lmat(X).L
        matrices.append(csr_matrix(identity(len(X)) + e * L))
    return _packed(matrices)


def cellrank(X, ordering, neighbors, schemes):
    """P for every number of neighbours and scheme."""
    import anndata
    import scanpy
    from cellrank.kernels import PseudotimeKernel

    data = anndata.AnnData(X, obs={"order": ordering - ordering.min()})
    matrices = []
    for k, scheme in zip(neighbors, schemes, strict=True):
        scanpy.pp.neighbors(data, n_neighbors=int(k), use_rep="X")
        kernel = PseudotimeKernel(data, time_key="order")
        kernel.compute_transition_matrix(threshold_scheme=str(scheme), show_progress_bar=False, n_jobs=1)
        matrices.append(kernel.transition_matrix.tocsr())
    return _packed(matrices)


def deeptime(P, A, B):
    from deeptime.markov import reactive_flux
    from deeptime.markov.tools import analysis

    flux = reactive_flux(P, A, B)
    return {
        "stationary": analysis.stationary_distribution(P),
        "passage": analysis.mfpt(P, A),
        "committor": analysis.committor(P, A, B),
        "backward": analysis.committor(P, A, B, forward=False),
        "net": flux.net_flux,
        "total": flux.total_flux,
        "rate": flux.rate,
    }


def versions(names):
    return {str(name): version(str(name)) for name in names}


if __name__ == "__main__":
    task, source, target = sys.argv[1:]
    with np.load(source) as arrays:
        result = globals()[task](**arrays)
    np.savez(target, **result)
