"""Object files on disk, so that a later process need not compile: private to the user, checked by digest, bounded.

``ONNXPLUG_CACHE_DIR`` names the folder (default: the user's cache folder); ``ONNXPLUG_CACHE=0`` switches it off. Several
processes may share it: files are written aside and renamed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
from pathlib import Path

log = logging.getLogger("onnxplug.cpu")

LIMIT = 256 << 20
"""Bytes; beyond it the files not used for longest go."""
_DIGEST = 16


class ObjectCache:
    """A folder of ``name.o`` files, each behind the digest of its content."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self._limit = folder, limit
        self._written = 0

    def get(self, name: str) -> bytes | None:
        """The object of that name, or None; a damaged file counts as none."""
        path = self.folder / f"{name}.o"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, blob = data[:_DIGEST], data[_DIGEST:]
        if hashlib.blake2b(blob, digest_size=_DIGEST).digest() != digest:
            log.warning("the cached object %s is damaged and will be made again", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return blob

    def put(self, name: str, blob: bytes) -> None:
        """Keep an object; a folder that cannot be written to keeps nothing."""
        import tempfile  # with all that a process which finds everything here does not need

        try:
            handle, aside = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.blake2b(blob, digest_size=_DIGEST).digest() + blob)
            os.replace(aside, self.folder / f"{name}.o")
        except OSError as error:
            log.info("compiled code is not kept: %s", error)
            return
        self._written += len(blob)
        if self._written > self._limit // 16:
            self._written = 0
            self.trim()

    def trim(self) -> None:
        """Remove the files not used for longest until the folder is within its limit."""
        files = []
        for path in self.folder.glob("*.o"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


@functools.cache
def object_cache() -> ObjectCache | None:
    """The cache of this user; None when it is switched off or its folder is not this user's alone."""
    if os.environ.get("ONNXPLUG_CACHE") == "0":
        return None
    named = os.environ.get("ONNXPLUG_CACHE_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (Path(named) if named else home / "onnxplug") / "cpu"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = folder.stat()
    except (OSError, RuntimeError) as error:
        log.info("compiled code is not kept: %s", error)
        return None
    if hasattr(os, "getuid") and (stat.st_uid != os.getuid() or stat.st_mode & 0o022):
        log.warning("compiled code is not kept: %s belongs to, or can be written by, other users", folder)
        return None
    return ObjectCache(folder)
