"""What a provider keeps on disk so that a later process need not make it again: compiled code, plans, measured choices.

`DiskCache` and `user_cache` are imported from `onnxplug.contract.cache`. `ONNXPLUG_CACHE_DIR` names the folder of all providers (default:
`onnxplug` in the user's cache folder); `ONNXPLUG_CACHE=0` switches it off. Several processes may share it: files are written aside and
renamed.
"""

from __future__ import annotations

import contextlib
import os

from onnxplug.contract.digest import blake2b
from onnxplug.contract.logs import Log

log = Log("onnxplug.cache")
_DIGEST = 16
_WRITTEN = "written"
"""A file with a byte for each `_UNIT` bytes put into the folder since it was last trimmed, by whichever process."""
_UNIT = 4096


class DiskCache:
    """A folder of files, `name` and `suffix`, each behind the digest of its content. Beyond `limit` bytes those not used for longest go."""

    def __init__(self, folder: str | os.PathLike[str], suffix: str, limit: int) -> None:
        self.folder, self._suffix, self._limit = os.fspath(folder), suffix, limit

    def get(self, name: str) -> bytes | None:
        """What is kept under that name, or None; a damaged file counts as none."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
        digest, blob = data[:_DIGEST], data[_DIGEST:]
        if _digest(blob) != digest:
            log.warning("the cached file %s is damaged and will be made again", path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return blob

    def put(self, name: str, blob: bytes) -> None:
        """Keep some bytes; a folder that cannot be written to keeps nothing."""
        path = self._path(name)
        # not by tempfile, which imports much that a first session has no use for
        aside = os.path.join(self.folder, f"{os.urandom(8).hex()}.tmp")
        try:
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_digest(blob) + blob)
            os.replace(aside, path)
        except OSError as error:
            log.info("%s is not kept: %s", path, error)
            return
        if self._is_due(len(blob)):
            with contextlib.suppress(FileNotFoundError):  # somebody emptied the cache
                self.trim()

    def trim(self) -> None:
        """Remove the files not used for longest until the folder is within its limit."""
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.endswith(self._suffix):
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
        return os.path.join(self.folder, f"{name}{self._suffix}")


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


def _digest(blob: bytes) -> bytes:
    return blake2b(blob, digest_size=_DIGEST).digest()
