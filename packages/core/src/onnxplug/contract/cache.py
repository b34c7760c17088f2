"""What a provider keeps on disk so that a later process need not make it again: compiled code, plans, measured choices.

`DiskCache` and `user_cache` are imported from `onnxplug.contract.cache`. `ONNXPLUG_CACHE_DIR` names the folder of all providers (default:
`onnxplug` in the user's cache folder); `ONNXPLUG_CACHE=0` switches it off. Several processes may share it: files are written aside and
renamed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

import numpy as np

from onnxplug.contract.digest import blake2b
from onnxplug.contract.logs import Log

log = Log("onnxplug.cache")
ALIGNMENT = 64
"""Bytes: where arrays begin."""
_DIGEST = 16
_FORMAT = 2
"""Number of what is written here, raised whenever it changes: releases that share a folder do not read each other's files."""
_WRITTEN = "written"
"""A file with a byte for each `_UNIT` bytes put into the folder since it was last trimmed, by whichever process."""
_UNIT = 4096
_ASIDE = ".tmp"
"""What files are called while they are written. Those of processes that ended meanwhile go with the others."""


class DiskCache:
    """A folder of files, `name`, the number of their format and `suffix`, each behind the digest of its name and content. Beyond `limit`
    bytes those not used for longest go, whatever their format."""

    def __init__(self, folder: str | os.PathLike[str], suffix: str, limit: int) -> None:
        self.folder, self._suffix, self._limit = os.fspath(folder), suffix, limit

    def get(self, name: str) -> bytes | None:
        """What is kept under that name, or None; a damaged file counts as none, and so does another one's under this name."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                digest, blob = file.read(_DIGEST), file.read()
        except OSError:
            return None
        return blob if self._is_sound(path, _digest(name, blob) == digest) else None

    def put(self, name: str, blob: bytes) -> None:
        """Keep some bytes; a folder that cannot be written to keeps nothing."""
        self._write(name, (_digest(name, blob), blob), len(blob))

    def get_arrays(self, name: str, sizes: Sequence[int], checksum: int) -> list[np.ndarray] | None:
        """The arrays that ``put_arrays`` kept under that name, as uint8 arrays of these sizes (bytes), each aligned to ``ALIGNMENT``; None
        where nothing is kept, or something with another ``checksum``. For much data: it is read once, to where it stays."""
        starts, size = _places(sizes)
        path = self._path(name)
        block = np.empty(size + ALIGNMENT, np.uint8)
        first = -block.ctypes.data % ALIGNMENT
        whole = block[first : first + size]
        try:
            with open(path, "rb", buffering=0) as file:
                read = file.readinto(whole.data) if os.fstat(file.fileno()).st_size == size else -1
        except OSError:
            return None
        if not self._is_sound(path, read == size and _checksum([whole]) == checksum):
            return None
        return [whole[start : start + nbytes] for start, nbytes in zip(starts, sizes, strict=True)]

    def put_arrays(self, name: str, arrays: Sequence[np.ndarray]) -> int:
        """Keep the bytes of dense arrays, without their types and shapes; returns the checksum that ``get_arrays`` asks for, which the
        caller keeps."""
        pieces: list[np.ndarray] = []
        for array in arrays:
            pieces += array.reshape(-1).view(np.uint8), np.zeros(-array.nbytes % ALIGNMENT, np.uint8)
        self._write(name, (piece.data for piece in pieces), sum(piece.nbytes for piece in pieces))
        return _checksum(pieces)

    def _is_sound(self, path: str, intact: bool) -> bool:
        """Whether what was read is what was written, and the file counts as used."""
        if not intact:
            log.warning("the cached file %s is damaged and will be made again", path)
            return False
        with contextlib.suppress(OSError):
            os.utime(path)
        return True

    def _write(self, name: str, pieces: Iterable[bytes | memoryview], nbytes: int) -> None:
        path = self._path(name)
        # not by tempfile, which imports much that a first session has no use for
        aside = os.path.join(self.folder, f"{os.urandom(8).hex()}{_ASIDE}")
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.writelines(pieces)
            os.replace(aside, path)
        except OSError as error:
            log.info("%s is not kept: %s", path, error)
            with contextlib.suppress(OSError):
                os.unlink(aside)  # a full disk stays full otherwise
            return
        if self._is_due(nbytes):
            with contextlib.suppress(FileNotFoundError):  # somebody emptied the cache
                self.trim()

    def trim(self) -> None:
        """Remove the files not used for longest until the folder is within its limit."""
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.endswith((self._suffix, _ASIDE)):
                        stat = entry.stat()
                        files.append((stat.st_mtime, stat.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size

    def _is_due(self, nbytes: int) -> bool:
        """Whether enough has come since the folder was last looked at: to look takes as long as to compile dozens of kernels."""
        try:
            with open(os.path.join(self.folder, _WRITTEN), "ab") as file:
                file.write(bytes(-(-nbytes // _UNIT)))
                due = file.tell() * _UNIT > self._limit // 16
                if due:
                    file.truncate(0)
        except OSError as error:
            log.info("%s is not kept: %s", _WRITTEN, error)
            return False
        return due

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, f"{name}.{_FORMAT}{self._suffix}")


def user_cache(subfolder: str, suffix: str, limit: int) -> DiskCache | None:
    """The cache of this user in a provider's subfolder; None when caches are switched off or the folder is not this user's alone."""
    if os.environ.get("ONNXPLUG_CACHE") == "0":
        return None
    named = os.environ.get("ONNXPLUG_CACHE_DIR")
    try:
        folder = os.path.join(named or _of_user(), subfolder)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        stat = os.stat(folder)
    except OSError as error:
        log.info("nothing is kept on disk for later processes: %s", error)
        return None
    if hasattr(os, "getuid") and (stat.st_uid != os.getuid() or stat.st_mode & 0o022):
        log.warning("nothing is kept for later processes: %s belongs to, or can be written by, other users", folder)
        return None
    return DiskCache(folder, suffix, limit)


def _of_user() -> str:
    """The folder of all providers in the user's cache folder. OSError for a user without a home."""
    caches = os.environ.get("XDG_CACHE_HOME")
    if not caches:
        home = os.path.expanduser("~")
        if home == "~":
            raise OSError("the user's home folder is not known")
        caches = os.path.join(home, ".cache")
    return os.path.join(caches, "onnxplug")


def _places(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where arrays of these sizes begin in a file, and where it ends."""
    starts, at = [], 0
    for nbytes in sizes:
        starts.append(at)
        at += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return starts, at


def _checksum(pieces: Iterable[np.ndarray]) -> int:
    """CRC-32 of pieces one behind the other: against damage only, in a fifth of a digest's time."""
    import zlib

    found = 0
    for piece in pieces:
        found = zlib.crc32(piece.data, found)
    return found


def _digest(name: str, blob: bytes) -> bytes:
    found = blake2b(f"{name}\0".encode("utf-8", "surrogatepass"), digest_size=_DIGEST)
    found.update(blob)
    return found.digest()
