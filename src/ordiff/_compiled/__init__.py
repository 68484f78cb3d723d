"""The compiled loops, and nothing else: plain numba on CSR patterns.

csr           sparse products, transposes, sums over rows and columns
graph         neighbour lists: sorting, distances, selection
transition    the log-kernel and the row softmax that make every transition matrix
likelihood    what observations get from time slices of a chain, and back

Nearly every loop takes ``start, stop`` and works on these rows only, without the interpreter lock: `_parallel` gives
each thread ranges of its own. Loops compile on first use and are cached on disk. With NUMBA_DISABLE_JIT=1 they are
plain Python.

Indices are viewed as unsigned integers (signed ones cost numba a wrap-around test per access).
"""
