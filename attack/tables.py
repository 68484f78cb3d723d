"""Damaged tables of every format but h5ad, which takes a process each."""

from __future__ import annotations

import gzip
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from attack.files import cut, flipped
from attack.outcomes import limit_memory, say
from ordiff.cli.readers import read_table

KINDS = ("csv", "csv.gz", "npz", "npy", "parquet")


def main(start: int, stop: int) -> None:
    limit_memory()
    warnings.simplefilter("ignore")
    X = np.random.default_rng(0).normal(size=(50, 3))
    with tempfile.TemporaryDirectory() as folder:
        text = "x,y,t\n" + "\n".join(",".join(map(str, row)) for row in X)
        paths = {kind: Path(folder) / f"table.{kind}" for kind in KINDS}
        paths["csv"].write_text(text)
        paths["csv.gz"].write_bytes(gzip.compress(text.encode()))
        np.savez_compressed(paths["npz"], X=X, t=X[:, 0])
        np.save(paths["npy"], X)
        parquet.write_table(pyarrow.table({"x": X[:, 0], "y": X[:, 1]}), paths["parquet"])
        whole = {kind: path.read_bytes() for kind, path in paths.items()}
        for number in range(start, stop):
            rng, kind = np.random.default_rng(number), KINDS[number % len(KINDS)]
            path = paths[kind]
            (flipped if rng.random() < 0.6 else cut)(path, whole[kind], {}, rng)
            try:
                read_table(path)
                say("accepted")
            except ValueError as error:
                say("refused" if str(path) in str(error) else "cryptic", f"{number}: {error}")
            except Exception as error:
                say("cryptic", f"{number}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
