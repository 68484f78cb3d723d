"""Files that lie: sizes, types and shapes are checked before anything is read; files are written whole or not."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ordiff as od
from ordiff import _archive
from processes import environment, run
from small_model import small_model


@pytest.fixture(scope="module")
def model() -> od.SnapshotSDE:
    return small_model()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    model.save(path)
    return path


def rewritten(saved, path, change) -> None:
    """The file with its members changed, checksums and all."""
    with np.load(saved) as file:
        members = dict(file)
    meta = json.loads(bytes(members.pop("meta")))
    change(members, meta)
    np.savez_compressed(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **members)


def put(name, value):
    def change(members, meta) -> None:
        members[name] = np.asarray(value(members[name]) if callable(value) else value)

    return change


def first(value):
    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return change


def set_meta(*keys, value):
    def change(members, meta) -> None:
        for key in keys[:-1]:
            meta = meta[key]
        meta[keys[-1]] = value

    return change


HOSTILE = {
    "index -1": (put("graph.indices", first(-1)), "indices must be 0"),
    "index beyond": (put("graph.indices", first(10**6)), "indices must be 0"),
    "indptr shuffled": (put("graph.indptr", lambda a: a[::-1]), "indptr"),
    "indptr not ascending": (put("graph.indptr", lambda a: np.r_[a[0], a[2], a[1], a[3:]]), "indptr must ascend"),
    "short squares": (put("graph.sqdist", lambda a: a[:-1]), "graph.sqdist has shape"),
    "short noise": (put("dynamics.noise", lambda a: a[:-1]), "dynamics.noise has shape"),
    "no own index": (put("graph.indices", lambda a: np.where(a == 0, 1, a)), "ascend|itself"),
    "a distance to itself": (put("graph.sqdist", first(1.0)), "sqdist"),
    "nan": (put("states.points", first(np.nan)), "not finite"),
    "negative noise": (put("dynamics.noise", first(-1.0)), "noise must be positive"),
    "words": (put("ordering_", lambda a: a.astype("U8")), "has the type"),
    "objects": (put("start", np.array([None])), "start has"),
    "complex": (put("ordering_", lambda a: a.astype(complex)), "has the type"),
    "one axis more": (put("noise_", lambda a: a[:, None]), "axes"),
    "unknown member": (lambda members, meta: members.update(x=np.ones(2)), "'x', which is not known"),
    "missing member": (lambda members, meta: members.pop("chain.ordering"), "no member 'chain.ordering'"),
    "sample beyond": (put("unreached_", np.array([10**9])), "unreached_"),
    "a method among the numbers": (set_meta("fitted", "predict", value="x"), "nothing else"),
    "wrong type": (set_meta("fitted", "converged_", value="yes"), "of type str"),
    "unknown setting": (set_meta("settings", "fit", value=1), "'fit', which is not known"),
    "unknown group": (set_meta("settings", "solver", value={"group": "Popen"}), "'Popen', which is not known"),
    "unknown member of a group": (set_meta("settings", "solver", value={"group": "Solver", "x": 1}), "'x'"),
    "dimension": (set_meta("states", "dimension", value=10**6), "dimension"),
    "step": (set_meta("eps", value=0), "eps"),
    "newer": (set_meta("format", value=99), "newer version of ordiff .*update"),
    "older": (set_meta("format", value=1), "has format 1"),
    "not ours": (set_meta("kind", value="x"), "something else"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models_are_refused_by_name(name, saved, tmp_path):
    change, said = HOSTILE[name]
    path = tmp_path / "hostile.npz"
    rewritten(saved, path, change)
    with pytest.raises(ValueError, match=said) as caught:
        od.load(path)
    assert str(path) in str(caught.value)


def test_deep_json_is_refused(saved, tmp_path):
    with np.load(saved) as file:
        members = dict(file) | {"meta": np.frombuffer(b'{"kind":' + b"[" * 10**5, np.uint8)}
    np.savez(tmp_path / "deep.npz", **members)
    with pytest.raises(ValueError, match=r"deep\.npz is not a model"):
        od.load(tmp_path / "deep.npz")


def test_a_zip_bomb_is_not_unpacked(saved, tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        for _ in range(200):
            member.write(bytes(2**20))
    with pytest.raises(ValueError, match="would unpack to"):
        od.load(path)


def test_a_member_that_understates_its_size_is_refused(tmp_path):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.zeros(10))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", buffer.getvalue().replace(b"(10,)", b"(99,)"))
    with _archive.opened(tmp_path / "x.npz") as archive, pytest.raises(ValueError, match=r"shape \(99,\), but"):
        archive.arrays({"a": _archive.ArraySpec("f", "n")})


def test_any_flipped_bit_is_refused_or_harmless(saved, model, rng, tmp_path):
    content, path = saved.read_bytes(), tmp_path / "flipped.npz"
    for at in rng.integers(len(content), size=60):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        said = str(path)
        try:
            np.testing.assert_array_equal(od.load(path).ordering_, model.ordering_)
        except ValueError as error:
            said = str(error)
        assert str(path) in said


# ------------------------------------------------------------------------------------------- writing


def test_saves_at_once_leave_one_whole_file(model, tmp_path):
    path = tmp_path / "model.npz"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: model.save(path), range(12)))
    np.testing.assert_array_equal(od.load(path).ordering_, model.ordering_)
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_file_before_it(error, saved, model, monkeypatch, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(saved.read_bytes())

    def full(file, **members) -> None:
        file.write(b"half")
        raise error

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(type(error)):
        model.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_a_new_file_has_the_usual_mode(model, tmp_path):
    model.save(tmp_path / "model.npz")
    (tmp_path / "other").touch()
    assert (tmp_path / "model.npz").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_sigterm_while_writing_leaves_nothing(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from ordiff._archive import whole_file\n"
        "with whole_file(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    with pytest.raises(AssertionError, match=f"ended with {128 + signal.SIGTERM}"):
        run([sys.executable, "-c", code, str(tmp_path / "file")], environment(), 60)
    assert not list(tmp_path.iterdir())
