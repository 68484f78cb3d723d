from __future__ import annotations

import numpy as np

from ordiff._elimination import GTHElimination


def test_gth_elimination_in_blocks(rng):
    N = 150
    B = rng.random((N, N)) * (rng.random((N, N)) < 0.3)
    np.fill_diagonal(B, 0.0)
    leaving, b = 1e-3 * rng.random(N), rng.normal(size=N)
    A = np.diag(B.sum(axis=1) + leaving) - B
    found = GTHElimination(B.copy(), leaving)
    np.testing.assert_allclose(found.solve(b), np.linalg.solve(A, b), rtol=1e-9)
    np.testing.assert_allclose(found.solve(b, transposed=True), np.linalg.solve(A.T, b), rtol=1e-9)
    np.testing.assert_allclose(found.solve(leaving), 1.0, rtol=1e-14)
