"""Versions of the operators that the installed onnx knows, kept on disk for each release of it: kernels are checked against them, in
processes too that have no other use for onnx."""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import sys
from collections.abc import Mapping
from typing import Any

from onnxplug._onnx import defer
from onnxplug.contract.cache import DiskCache, user_cache
from onnxplug.contract.digest import blake2b

_LIMIT = 1 << 20
_NEWEST = 2**31 - 1  # onnx keeps versions in a C int


@functools.cache
def schema_versions() -> Mapping[tuple[str, str], frozenset[int]]:
    """(domain, operator) -> since-versions of all its schemas, from onnx's own history."""
    shelf = _shelf()
    if shelf is not None and (kept := shelf[0].get(shelf[1])) is not None:
        return {key: frozenset(found) for key, found in marshal.loads(kept).items()}
    defer()
    from onnx import defs

    versions: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        versions.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    if shelf is not None:
        own = {key: sorted(found) for key, found in versions.items() if key[0] == "" or key[0].startswith("ai.onnx")}
        shelf[0].put(shelf[1], marshal.dumps(own))  # without what this program registered
    return {key: frozenset(found) for key, found in versions.items()}


def versions_of(domain: str, op_type: str) -> frozenset[int]:
    """Since-versions of all schemas of one operator; none of one that onnx does not define. Where nothing is kept on disk, onnx is asked
    for this one alone, rather than for the whole history in each process."""
    if _shelf() is not None:
        return schema_versions().get((domain, op_type), frozenset())
    defer()
    from onnx import defs

    found, version = set(), _NEWEST
    while version > 0 and defs.has(op_type, version, domain):
        version = defs.get_schema(op_type, version, domain).since_version
        found.add(version)
        version -= 1
    return frozenset(found)


@functools.cache
def _shelf() -> tuple[DiskCache, str] | None:
    """Where the versions are kept, and under which name."""
    cache, release = user_cache("onnx", ".versions", _LIMIT), onnx_release()
    if cache is None or release is None:
        return None
    return cache, blake2b(repr(release).encode(), digest_size=20).hexdigest()


def onnx_release() -> Any:
    """What tells the installed onnx, which may not be imported yet, from other releases; None where it is not a plain folder."""
    spec = getattr(sys.modules["onnx"], "__spec__", None) if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    try:
        states = [os.stat(os.path.join(folder, name)) for name in ("", "version.py")]
    except OSError:
        return None
    return sys.version, folder, [(state.st_mtime_ns, state.st_size) for state in states]
