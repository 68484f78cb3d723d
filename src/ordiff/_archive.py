"""NPZ archives of arrays and JSON that come from outside: nothing is read before its size, type and shape are known.

An archive has one member of JSON, ``meta``, and arrays by name. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from ordiff import _validation
from ordiff._signals import termination_raises
from ordiff._validation import LARGEST_SPAN

# Members are no larger than this share of the file, or this many bytes in all: deflate alone makes 1000 of 1.
_LARGEST_RATIO, _SMALL = 100, 2**26
# The most members, and bytes of JSON.
_MOST_MEMBERS, _MOST_JSON = 1000, 2**24


@dataclass(frozen=True)
class ArraySpec:
    """What an array must be: real numbers ("f") or whole ones ("i"), a name for the length of each axis, the same name
    for the same length throughout the archive, and whether all numbers are finite."""

    kind: str
    axes: str  # names, a letter each
    finite: bool = True
    required: bool = True


@contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of ``path`` on leaving, and is removed after an error or SIGTERM."""
    path = _validation.path(path)
    with termination_raises():
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}-", suffix=".partial", dir=path.parent)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # as a new file has it, not the private mode of a temporary one
            partial.chmod((path.stat().st_mode if path.exists() else 0o666 & ~_umask()) & 0o777)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def remove_partial(path: Path) -> None:
    """Remove what processes that were killed in `whole_file` have left beside ``path``."""
    for partial in path.parent.glob(f".{glob.escape(path.name[:100])}-*.partial"):
        partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write(path: str | Path, meta: dict[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write an archive."""
    members: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    members["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with whole_file(path) as file:
        np.savez_compressed(file, **members)


@contextmanager
def told(path: str | Path, what: str) -> Iterator[None]:
    """Every failure inside is one ValueError that names the file and what it should be."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # of zipfile, zlib, tokenize, json, numpy: a damaged file finds all of them
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"{path} is not {what}, or is damaged: {said}") from error


class Archive:
    """An open archive: its JSON, and its arrays once they are asked for by their specifications."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._zip = zipfile.ZipFile(file)
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        infos = self._zip.infolist()
        if len(infos) > _MOST_MEMBERS or len(self._members) < len(infos):
            raise ValueError(f"it has {len(infos)} members, or two of one name.")
        if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
            raise ValueError("its members are not compressed as numpy does it.")
        total = sum(info.file_size for info in infos)
        if total > max(_SMALL, _LARGEST_RATIO * size):
            raise ValueError(f"its {size} bytes would unpack to {total}.")

    def meta(self) -> dict[str, Any]:
        """The JSON."""
        if "meta" not in self._members:
            raise ValueError("it has no member meta.")
        if self._members["meta"].file_size > _MOST_JSON:
            raise ValueError("its JSON is too long.")
        dtype, shape, start = self._header("meta")
        if dtype != np.uint8 or len(shape) != 1:
            raise ValueError("its member meta is not JSON.")
        found = json.loads(self._bytes("meta", start))
        if not isinstance(found, dict):
            raise ValueError("its JSON is no object.")
        return found

    def arrays(self, specs: Mapping[str, ArraySpec]) -> tuple[dict[str, Any], dict[str, int]]:
        """The arrays, and the lengths of their axes. All headers are checked before the first array is read."""
        unknown = sorted(self._members.keys() - specs.keys() - {"meta"})
        if unknown:
            raise ValueError(f"it has a member {unknown[0]!r}, which is not known.")
        lengths: dict[str, int] = {}
        headers = {}
        for name, spec in specs.items():
            if name not in self._members:
                if spec.required:
                    raise ValueError(f"it has no member {name!r}.")
                continue
            headers[name] = self._header(name)
            dtype, shape, _ = headers[name]
            if dtype.kind not in ("iu" if spec.kind == "i" else "f") or dtype.itemsize > 8 or dtype.hasobject:
                raise ValueError(f"{name} has the type {dtype}.")
            if len(shape) != len(spec.axes):
                raise ValueError(f"{name} has shape {shape}, but must have {len(spec.axes)} axes.")
            for axis, length in zip(spec.axes, shape, strict=True):
                if lengths.setdefault(axis, length) != length:
                    raise ValueError(f"{name} has shape {shape}, which does not fit the other arrays.")
        return {name: self._array(name, specs[name], *header) for name, header in headers.items()}, lengths

    def names(self) -> list[str]:
        """The members' names."""
        return sorted(self._members)

    def _header(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
        """Type and shape of a member, and where its numbers begin; they fill the rest of it."""
        with self._zip.open(self._members[name]) as member:
            version = np.lib.format.read_magic(member)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"{name} has a header that numpy does not write.")
            read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(member)
            start = member.tell()
        if fortran and len(shape) > 1:
            raise ValueError(f"{name} is not in C order.")
        if min(shape, default=0) < 0 or start + prod(shape) * dtype.itemsize != self._members[name].file_size:
            raise ValueError(f"{name} has shape {shape}, but {self._members[name].file_size} bytes.")
        return dtype, shape, start

    def _bytes(self, name: str, start: int) -> bytes:
        with self._zip.open(self._members[name]) as member:
            content = member.read()
        if len(content) != self._members[name].file_size:
            raise ValueError(f"{name} is cut short.")
        return content[start:]

    def _array(self, name: str, spec: ArraySpec, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Any:
        stored = np.frombuffer(self._bytes(name, start), dtype).reshape(shape)
        array = stored.astype(np.float64 if spec.kind == "f" else np.int64)
        if spec.finite and not (np.abs(array) <= LARGEST_SPAN).all():
            raise ValueError(f"{name} has numbers that are not finite, or too large.")
        return array


@contextmanager
def opened(path: str | Path) -> Iterator[Archive]:
    """An archive to read."""
    with _validation.path(path).open("rb") as file:
        yield Archive(file, os.fstat(file.fileno()).st_size)


def checked_json(value: Any, spec: Any, name: str) -> Any:
    """JSON of known keys and types: a spec is a dict of specs, a list of one spec for all entries, a tuple of specs for
    the entries one by one, or a function that raises."""
    if isinstance(spec, dict):
        if not isinstance(value, dict) or value.keys() != spec.keys():
            raise ValueError(f"{name} must have {', '.join(spec)}, and nothing else.")
        for key, one in spec.items():
            checked_json(value[key], one, f"{name}.{key}")
    elif isinstance(spec, list | tuple):
        specs = [*spec] * len(value) if isinstance(spec, list) and isinstance(value, list) else [*spec]
        if not isinstance(value, list) or len(value) != len(specs):
            raise ValueError(f"{name} is not a list as it should be.")
        for k, (entry, one) in enumerate(zip(value, specs, strict=True)):
            checked_json(entry, one, f"{name}[{k}]")
    else:
        spec(value, name)
    return value


def one_of(*kinds: type) -> Any:
    """A function that raises unless a value is of one of these types; a bool is no number."""

    def check(value: Any, name: str) -> None:
        if type(value) not in kinds:
            raise ValueError(f"{name} is of type {type(value).__name__}.")

    return check
