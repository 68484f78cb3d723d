"""`OrdiffKernel`: the operator as a CellRank kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordiff import _validation
from ordiff.single_cell._key import PCA, PSEUDOTIME
from ordiff.single_cell._operator import OperatorOptions, compute_operator
from ordiff.single_cell._read import check_anndata
from ordiff.single_cell._write import transition_matrix

if TYPE_CHECKING:
    from anndata import AnnData


def define_kernel() -> Any:
    """The class, which derives from one of CellRank; `ordiff.single_cell` calls this once."""
    try:
        from cellrank.kernels import UnidirectionalKernel
        from cellrank.kernels.mixins import ConnectivityMixin
    except ImportError:
        raise _validation.MissingExtraError(
            "OrdiffKernel needs cellrank, which ordiff does not install: pip install 'cellrank>=2.0'."
        ) from None

    class OrdiffKernel(ConnectivityMixin, UnidirectionalKernel):
        """`operator` as a CellRank kernel: add it to and multiply it with others, and give it to an estimator.

        It goes forward in time only; for backward questions give an ordering that falls, such as −pseudotime.
        """

        def __init__(self, adata: AnnData, backward: bool = False, **kwargs: Any) -> None:
            if backward:
                raise ValueError(
                    "OrdiffKernel goes forward only: for the process backward give an ordering that falls, for "
                    'instance compute_transition_matrix(-adata.obs["dpt_pseudotime"]).'
                )
            super().__init__(check_anndata(adata), **kwargs)

        def _read_from_adata(self, **kwargs: Any) -> None:
            """CellRank's own, but for the neighbours, of which scanpy's are not needed."""
            super(ConnectivityMixin, self)._read_from_adata(**kwargs)

        @property
        def connectivities(self) -> Any:
            """1 where a step leads to another cell: the graph of the kernel, which `plot_projection` takes."""
            pattern = self.transition_matrix.tocsr(copy=True)
            pattern.data[:] = 1.0
            pattern.setdiag(0.0)
            pattern.eliminate_zeros()
            return pattern

        def compute_transition_matrix(
            self,
            ordering: Any = PSEUDOTIME,
            use_rep: str = PCA,
            neighbors_key: str | None = None,
            **options: Any,
        ) -> OrdiffKernel:
            """The options are those of `ordiff.single_cell.operator`; nothing is written to ``adata``."""
            result = compute_operator(self.adata, OperatorOptions(ordering, use_rep, neighbors_key, **options))
            self.transition_matrix = transition_matrix(result.op)
            self._params = dict(result.settings)
            return self

        def __invert__(self) -> OrdiffKernel:
            raise ValueError("OrdiffKernel goes forward only: compute it with an ordering that falls instead.")

    # pickle looks the class up by these names
    OrdiffKernel.__module__, OrdiffKernel.__qualname__ = "ordiff.single_cell", "OrdiffKernel"
    return OrdiffKernel
