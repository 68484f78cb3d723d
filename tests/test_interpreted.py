"""The core without compiling: numba's loops as the plain Python functions that they are, which a debugger can enter."""

from __future__ import annotations

import sys

import pytest

import processes

# On small graphs: every kind of kernel, steps, searches, the likelihood and its derivatives, in whole steps of time.
CORE = [
    "kernel/test_combinations.py::test_a_sparse_graph_gives_the_dense_kernel_restricted",
    "learning/test_likelihood.py::test_value_is_that_of_dense_sums",
    "learning/test_likelihood.py::test_gradient_by_the_ordering_is_the_double_sum_of_the_paper",
    "learning/test_likelihood.py::test_gradient_of_single_values",
    "learning/test_scores.py::test_scores",
    "learning/test_transition.py",
    "test_graph.py::test_exact_neighbours",
    "test_graph.py::test_nearest_are_sorted_and_leave_out_self",
    "test_graph.py::test_radius_is_the_distance_of_the_last",
    "test_operator.py::test_mass_is_conserved",
    "test_operator.py::test_steps_match_the_dense_matrix",
    "test_operator.py::test_the_adjoint_is_the_adjoint",
]


@pytest.mark.slow
def test_the_core_without_compiling():
    # a compiled loop does not warn of 1/0, which is inf and told of afterwards
    options = ["-m", "not slow", "-W", "ignore::RuntimeWarning", "-p", "no:cacheprovider"]
    options += ["-k", "not fractions1 and not fractions2"]
    command = [sys.executable, "-m", "pytest", *options, *(str(processes.TESTS / name) for name in CORE)]
    environ = processes.environment(NUMBA_DISABLE_JIT="1", **processes.ONE_THREAD)
    assert " passed" in processes.run(command, environ, seconds=300)
