"""cuDNN's plans on disk, so that a later process need not search: private to the user, checked by digest.

``ONNXPLUG_CACHE_DIR`` names the folder (default: the user's cache folder); ``ONNXPLUG_CACHE=0`` switches it off. Several processes may
share it: files are written aside and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path

log = logging.getLogger("onnxplug.cuda")
_DIGEST = 16
LIMIT = 64 << 20
"""Bytes; beyond it the files not used for longest go."""


class PlanStore:
    """A folder of ``key.plan`` files, each behind the digest of its content."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder, self._limit = folder, limit

    def get(self, key: str) -> bytes | None:
        """What is kept under a key, or None; a damaged file counts as none."""
        path = self._folder / f"{key}.plan"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, blob = data[:_DIGEST], data[_DIGEST:]
        if hashlib.blake2b(blob, digest_size=_DIGEST).digest() != digest:
            log.warning("the plan %s is damaged and will be made again", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """Keep a plan; a folder that cannot be written to keeps nothing."""
        try:
            handle, aside = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.blake2b(blob, digest_size=_DIGEST).digest() + blob)
            os.replace(aside, self._folder / f"{key}.plan")
        except OSError as error:
            log.info("a plan of cuDNN is not kept: %s", error)
            return
        self._trim()

    def _trim(self) -> None:
        files = []
        for path in self._folder.glob("*.plan"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def plan_store() -> PlanStore | None:
    """The store of this user; None when it is switched off or its folder is not this user's alone."""
    if os.environ.get("ONNXPLUG_CACHE") == "0":
        return None
    named = os.environ.get("ONNXPLUG_CACHE_DIR")
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = (Path(named) if named else home / "onnxplug") / "cuda"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = folder.stat()
    except (OSError, RuntimeError) as error:
        log.info("plans of cuDNN are not kept: %s", error)
        return None
    if hasattr(os, "getuid") and (stat.st_uid != os.getuid() or stat.st_mode & 0o022):
        log.warning("plans of cuDNN are not kept: %s belongs to, or can be written by, other users", folder)
        return None
    return PlanStore(folder)
