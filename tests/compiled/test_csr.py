"""The compiled loops over sparse rows, against SciPy: rows of every length, ranges in any cut, both index widths."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ordiff._compiled import csr

N = 700


@pytest.fixture(params=[np.int32, np.int64], ids=["32 bits", "64 bits"])
def matrix(request, rng):
    """A matrix with rows of every length up to 60, as SciPy has it and as the loops take it."""
    lengths = rng.integers(0, 60, N)
    columns = np.concatenate([rng.choice(N, length, replace=False) for length in lengths])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    P = sp.csr_array((rng.normal(0, 0.1, columns.size), columns, indptr), shape=(N, N))
    P.sort_indices()
    indices = csr.unsigned(P.indices.astype(request.param))
    return P, (P.indptr.astype(request.param), indices, P.data)


RANGES = [(0, 1), (1, 200), (200, 200), (200, N)]


def over(loop, *args):
    for start, stop in RANGES:
        loop(start, stop, *args)


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_products(matrix, rng, columns):
    P, parts = matrix
    f = rng.normal(size=(N, columns))
    out = np.full_like(f, np.nan)  # memory that was used before
    over(csr.multiply, *parts, f, out)
    np.testing.assert_allclose(out, P @ f, rtol=1e-12, atol=1e-13)
    more = rng.normal(size=(N, columns))
    added = more.copy()
    over(csr.multiply_add, *parts, f, added)
    np.testing.assert_allclose(added, more + P @ f, rtol=1e-12, atol=1e-13)
    added = more.copy()
    over(csr.multiply_transposed_add, *parts, f, added)
    np.testing.assert_allclose(added, more + P.T @ f, rtol=1e-12, atol=1e-13)
    out[:] = np.nan
    over(csr.increment, *parts, f, out)
    np.testing.assert_allclose(out, P @ f - P.sum(axis=1)[:, None] * f, rtol=1e-11, atol=1e-12)
    over(csr.increment, *parts, np.full_like(f, 7.3), out)
    assert not out.any()  # exactly, for constants


def test_products_in_single_precision(matrix, rng):
    P, (indptr, indices, data) = matrix
    f, out = rng.normal(size=(N, 5)).astype(np.float32), np.zeros((N, 5), np.float32)
    over(csr.multiply_add, indptr, indices, data.astype(np.float32), f, out)
    np.testing.assert_allclose(out, P @ f, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 3, 32])
def test_products_on_the_pattern(matrix, rng, columns):
    P, (indptr, indices, _) = matrix
    left, right = rng.normal(size=(2, N, columns))
    rows = np.repeat(np.arange(N), np.diff(P.indptr))
    more = rng.normal(size=P.nnz)
    out = more.copy()
    over(csr.sampled_product, indptr, indices, left, right, out)
    np.testing.assert_allclose(out, more + (left[rows] * right[P.indices]).sum(axis=1), rtol=1e-11, atol=1e-12)


def test_sums_over_rows_and_columns(matrix, rng):
    P, (indptr, indices, data) = matrix
    other, f, coefs, out = rng.normal(size=P.nnz), rng.normal(size=N), rng.normal(size=(2, N)), np.empty(N)
    rows = np.repeat(np.arange(N), np.diff(P.indptr))
    over(csr.row_dots, indptr, data, other, out)
    np.testing.assert_allclose(out, np.bincount(rows, data * other, N), rtol=1e-11, atol=1e-13)
    own = rng.permutation(N).astype(np.uint32)
    over(csr.row_differences, indptr, indices, own, data, f, out)
    np.testing.assert_allclose(out, P @ f - P.sum(axis=1) * f[own], rtol=1e-11, atol=1e-12)
    by = sp.csr_array((np.arange(P.nnz), P.indices, P.indptr), shape=P.shape).tocsc()
    sums = np.empty((3, N))
    edges = csr.unsigned(by.data.astype(indptr.dtype))
    columns = csr.unsigned(by.indices.astype(indptr.dtype))
    over(csr.column_sums, by.indptr.astype(indptr.dtype), columns, edges, data, coefs, sums)
    np.testing.assert_allclose(sums, np.vstack([coefs @ P, P.sum(axis=0)]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 3])
def test_rows_are_moved(rng, columns):
    f, order = rng.normal(size=(N, columns)), rng.permutation(N).astype(np.uint32)
    out, back = np.empty_like(f), np.empty_like(f)
    over(csr.gather_rows, order, f, out)
    np.testing.assert_array_equal(out, f[order])
    over(csr.scatter_rows, order, out, back)
    np.testing.assert_array_equal(back, f)
    parts = rng.normal(size=(4, N, columns))
    over(csr.sum_parts, parts, out)
    np.testing.assert_allclose(out, parts.sum(axis=0), rtol=1e-13, atol=1e-14)


def test_edges_are_moved(matrix, rng):
    P, (indptr, _, data) = matrix
    order = rng.permutation(N)
    target = np.empty(N, indptr.dtype)
    target[order] = np.concatenate([[0], np.cumsum(np.diff(indptr)[order])[:-1]])
    out = np.empty_like(data)
    over(csr.copy_rows, indptr, indptr[:-1], target, data, out)
    np.testing.assert_array_equal(out, P[order].data)
    at = csr.unsigned(rng.permutation(P.nnz).astype(indptr.dtype))
    csr.take(0, P.nnz, at, data, out)
    np.testing.assert_array_equal(out, data[at])


def test_moments_of_a_step_and_those_after_it(matrix, rng):
    P, parts = matrix
    X, mean = rng.normal(size=(2, N, 3))
    second = rng.normal(size=(N, 3, 3))
    first, square = np.empty((N, 3)), np.empty((N, 3, 3))
    over(csr.step_moments, *parts, X, mean, second, first, square)
    for i in (0, 1, 250, N - 1):
        p, z = P[[i]].toarray()[0], X - X[i]
        np.testing.assert_allclose(first[i], p @ (z + mean), rtol=1e-10, atol=1e-12)
        cross = np.einsum("j,ja,jb->ab", p, z, mean)
        expected = np.einsum("j,ja,jb->ab", p, z, z) + cross + cross.T + np.einsum("j,jab->ab", p, second)
        np.testing.assert_allclose(square[i], expected, rtol=1e-10, atol=1e-12)


def test_indices_are_as_narrow_as_they_can_be():
    assert (csr.index_dtype(2**31 - 1), csr.index_dtype(2**31)) == (np.int32, np.int64)
    for dtype, unsigned in ((np.int32, np.uint32), (np.int64, np.uint64)):
        indices = np.arange(5, dtype=dtype)
        assert csr.unsigned(indices).dtype == unsigned
        assert np.shares_memory(csr.unsigned(indices), indices)
