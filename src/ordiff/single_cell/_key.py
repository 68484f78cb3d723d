"""The names of all AnnData slots: those of scanpy and scvelo that are read, and those that ordiff writes (`Keys`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# obs: scanpy.tl.dpt; scanpy.tl.score_genes_cell_cycle
PSEUDOTIME = "dpt_pseudotime"
CELL_CYCLE_SCORES = ("S_score", "G2M_score")
# uns: the index of the root cell, as scanpy.tl.dpt takes it
ROOT = "iroot"
# obsm: scanpy.pp.pca, and the embeddings that the drift is projected to by default, in order of preference
PCA = "X_pca"
EMBEDDINGS = ("X_umap", "X_tsne", "X_draw_graph_fa", "X_phate")
# varm: scanpy.pp.pca
LOADINGS = "PCs"
# layers: scvelo.tl.velocity
VELOCITY = "velocity"
# obsp: scanpy.pp.neighbors; an entry of uns[neighbors_key] names another
DISTANCES = "distances"
DISTANCES_ENTRY = "distances_key"
# use_rep for the genes, adata.X
GENES = "X"


@dataclass(frozen=True)
class Keys:
    """The slots of one result. Velocities are named as scvelo looks for them: ``vkey="ordiff_velocity"``."""

    key: str = "ordiff"

    @property
    def settings(self) -> str:
        """The settings in ``uns``, a dict of numbers, strings and arrays of them."""
        return self.key

    @property
    def transitions(self) -> str:
        """P in ``obsp``, a csr_matrix; for CellRank, ``PrecomputedKernel("ordiff_transitions", adata=adata)``."""
        return f"{self.key}_transitions"

    @property
    def ordering(self) -> str:
        """The ordering as it was used, in ``obs``, or in ``obsm`` for several lineages."""
        return f"{self.key}_ordering"

    @property
    def noise(self) -> str:
        """ρ in ``obs``."""
        return f"{self.key}_noise"

    @property
    def density(self) -> str:
        """q in ``obs``, the sampling density up to a factor."""
        return f"{self.key}_density"

    @property
    def fates(self) -> str:
        """The fate probabilities in ``obsm``, a DataFrame."""
        return f"{self.key}_fates"

    def velocity(self, basis: str) -> str:
        """The drift in ``obsm``, in a representation or embedding: "X_pca" → "ordiff_velocity_pca"."""
        return f"{self.key}_velocity_{basis.removeprefix('X_')}"

    def std(self, slot: str) -> str:
        """The standard deviation, in ``obs``, of what `fit` wrote to a slot."""
        return f"{slot}_std"

    def own(self, name: str) -> bool:
        """Whether this is one of the slots."""
        slots = (self.transitions, self.ordering, self.noise, self.density, self.fates)
        return name.removesuffix("_std") in slots or name.startswith(self.velocity(""))


def check_key(key: Any) -> str:
    """A name of a result that can be written to a file."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(f"key_added must be a name without '/'; got {key!r}.")
    return key
