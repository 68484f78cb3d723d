"""Damaged model files: flipped bits, cut ends, and members that were changed with their checksums."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import ordiff as od
from attack.outcomes import limit_memory, say
from small_model import small_model

EXTREMES = [0, -1, 1e308, -1e308, 1e-308, np.nan, np.inf, 2**31, -(2**31), 2**62]
JSON_VALUES: list[Any] = [
    None,
    -1,
    0,
    1e308,
    "x",
    [],
    {},
    [[]],
    True,
    float("nan"),
    10**40,
    {"group": "Solver"},
    "é" * 99,
]


def main(start: int, stop: int) -> None:
    limit_memory()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        model = small_model()
        model.save(path)
        content, points = path.read_bytes(), model.samples_[:5]
        with np.load(path) as file:
            members = dict(file)
        for number in range(start, stop):
            rng = np.random.default_rng(number)
            mutate = (flipped, cut, changed_array, changed_json)[number % 4]
            mutate(path, content, dict(members), rng)
            try:
                again = od.load(path)
                finite = np.isfinite(again.predict(points)).all() and (again.predict_noise(points) > 0).all()
                say("accepted" if finite else "wrong", f"{number}: predictions that are not finite")
            except ValueError as error:
                say("refused" if str(path) in str(error) else "cryptic", f"{number}: {error}")
            except Exception as error:
                say("cryptic", f"{number}: {type(error).__name__}: {error}")


def flipped(path: Path, content: bytes, _: dict[str, Any], rng: np.random.Generator) -> None:
    damaged = bytearray(content)
    for at in rng.integers(len(content), size=rng.integers(1, 20)):
        damaged[at] = int(rng.integers(256))
    path.write_bytes(damaged)


def cut(path: Path, content: bytes, _: dict[str, Any], rng: np.random.Generator) -> None:
    a, b = np.sort(rng.integers(len(content), size=2))
    path.write_bytes(content[:a] if rng.random() < 0.5 else content[:a] + content[b:])


def changed_array(path: Path, _: bytes, members: dict[str, Any], rng: np.random.Generator) -> None:
    name = str(rng.choice(sorted(members.keys() - {"meta"})))
    array = members[name]
    with np.errstate(all="ignore"):
        match rng.integers(7):
            case 0:
                array = array[: rng.integers(len(array) + 1)]
            case 1:
                array = array[rng.permutation(len(array))]
            case 2:
                array = array.astype(rng.choice(["f4", "i2", "c16", "U3", "b1", "f2", "u8"]))
            case 3:
                array = array.reshape(*array.shape, 1)
            case 4:
                array = np.concatenate([array, array])
            case _:
                array = array.copy()
                if array.size:
                    value = EXTREMES[rng.integers(len(EXTREMES))]
                    array.flat[rng.integers(array.size)] = np.array(value, float).astype(array.dtype)
    members[name] = array
    if rng.random() < 0.1:
        del members[name]
    np.savez(path, **members)


def changed_json(path: Path, _: bytes, members: dict[str, Any], rng: np.random.Generator) -> None:
    meta = json.loads(bytes(members["meta"]))
    place = meta
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[rng.integers(len(keys))]
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        place[key] = JSON_VALUES[rng.integers(len(JSON_VALUES))]
        if isinstance(place, dict) and rng.random() < 0.2:
            place["predict"] = place.pop(key)
        break
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **members)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
