"""``onnxplug.contract.cache``: what providers keep for later processes comes back whole or not at all, bounded, the user's alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxplug.contract.cache import ALIGNMENT, DiskCache, user_cache


def kept(folder: Path, name: str) -> Path:
    """The file with what is kept under a name."""
    (found,) = folder.glob(f"{name}.*")
    return found


def test_bytes_come_back(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".o", 1000)
    cache.put("a", b"code")
    assert DiskCache(tmp_path, ".o", 1000).get("a") == b"code" and cache.get("b") is None
    assert DiskCache(tmp_path, ".plan", 1000).get("a") is None


def test_a_damaged_file_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path, ".o", 1000)
    cache.put("a", b"code")
    (kept(tmp_path, "a")).write_bytes((kept(tmp_path, "a")).read_bytes()[:-1])
    assert cache.get("a") is None and "damaged" in caplog.text


def test_another_name_s_file_counts_as_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path, ".o", 1000)
    cache.put("a", b"code")
    cache.put("b", b"another kernel's code")
    (kept(tmp_path, "a")).write_bytes((kept(tmp_path, "b")).read_bytes())
    assert cache.get("a") is None and "damaged" in caplog.text
    assert cache.get("b") == b"another kernel's code"


def test_releases_that_write_other_files_share_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither reads, replaces or complains of the other's; those not used for longest go, whoever wrote them."""
    cache = DiskCache(tmp_path, ".o", 150)
    cache.put("a", b"now")
    with monkeypatch.context() as later:
        later.setattr("onnxplug.contract.cache._FORMAT", 99)
        assert cache.get("a") is None
        cache.put("a", b"later")
    assert cache.get("a") == b"now" and not caplog.text
    (tmp_path / "a.o").write_bytes(bytes(200))  # what was written before files had a number
    os.utime(tmp_path / "a.o", (1, 1))
    cache.trim()
    assert cache.get("a") == b"now" and not (tmp_path / "a.o").exists()


ARRAYS = [
    np.arange(7, dtype=np.float32),
    np.zeros((0, 3)),
    np.arange(130, dtype=np.int8).reshape(2, 65),
    np.float64(2.5).reshape(()),
]
SIZES = [array.nbytes for array in ARRAYS]


def test_arrays_come_back_aligned_and_in_memory_of_their_own(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".o", 10000)
    checksum = cache.put_arrays("a", ARRAYS)
    for _ in range(2):
        found = cache.get_arrays("a", SIZES, checksum)
        assert found is not None and [f.tobytes() for f in found] == [array.tobytes() for array in ARRAYS]
        assert all(f.ctypes.data % ALIGNMENT == 0 for f in found if f.size)
        found[0][:] = 9
    assert cache.get_arrays("b", SIZES, checksum) is None
    assert cache.get_arrays("none", [], cache.put_arrays("none", [])) == []


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"0", lambda b: b[:9] + b"!" + b[10:]])
def test_damaged_arrays_count_as_none(
    damage: Callable[[bytes], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DiskCache(tmp_path, ".o", 10000)
    checksum = cache.put_arrays("a", ARRAYS)
    (kept(tmp_path, "a")).write_bytes(damage((kept(tmp_path, "a")).read_bytes()))
    assert cache.get_arrays("a", SIZES, checksum) is None and "damaged" in caplog.text


def test_the_files_not_used_for_longest_go(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".o", 400)
    (tmp_path / "of another kind").write_bytes(bytes(1000))
    for number in range(5):
        cache.put(str(number), bytes(100))
        os.utime(kept(tmp_path, f"{number}"), (number, number))
    assert [name for name in "01234" if cache.get(name) is not None] == ["2", "3", "4"]
    assert (tmp_path / "of another kind").exists()


def test_short_processes_keep_the_limit_too(tmp_path: Path) -> None:
    """A process that writes little looks at the folder all the same: many of them would fill it."""
    for number in range(64):
        DiskCache(tmp_path, ".o", 6400).put(str(number), bytes(200))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 6400


def test_the_folder_is_looked_at_when_a_part_of_the_limit_has_been_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By all processes together: to look at thousands of files takes longer than to compile one."""
    trims = []
    monkeypatch.setattr(DiskCache, "trim", lambda self: trims.append(self))
    for number in range(35):
        DiskCache(tmp_path, ".o", 16 * 40960).put(str(number), bytes(4096))
    assert len(trims) == 3


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "missing", ".o", 1000)
    cache.put("a", b"code")
    assert cache.get("a") is None


def test_files_that_were_not_finished_do_not_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ".o", 1000)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        cache.put("a", b"code")
    assert cache.get("a") is None and not [*tmp_path.iterdir()]
    left = tmp_path / "0123456789abcdef.tmp"  # of a process that was killed
    left.write_bytes(bytes(2000))
    os.utime(left, (1, 1))
    cache.put("a", b"code")
    cache.trim()
    assert cache.get("a") == b"code" and not left.exists()


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE", "0")
    assert user_cache("cpu", ".o", 1000) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners here")
def test_it_is_the_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ONNXPLUG_CACHE", raising=False)
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    cache = user_cache("cpu", ".o", 1000)
    assert (
        cache is not None and cache.folder == str(tmp_path / "cpu") and os.stat(cache.folder).st_mode & 0o777 == 0o700
    )
    os.chmod(cache.folder, 0o777)
    assert user_cache("cpu", ".o", 1000) is None, "others could put code there"
