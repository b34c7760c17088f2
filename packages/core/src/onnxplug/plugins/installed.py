"""Entry points of distributions installed in folders, read without ``importlib.metadata``, whose import takes longer than
discovery (it needs parsers of e-mail and ZIP files).

Only the common case is handled: folders on ``sys.path`` with well-formed ``.dist-info`` or ``.egg-info`` folders in them. Of
anything else (ZIP files, finders with metadata of their own, files that are not as installers write them) ``None`` says that
``importlib.metadata`` has to be asked.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder

from onnxplug.contract.records import record
from onnxplug.plugins.switches import normalized


class _Unusual(Exception):
    """Something that is left to ``importlib.metadata``."""


@record(frozen=True, slots=True)
class Reference:
    """What an entry point of ``group`` refers to, ``value`` being "module" or "module:object"."""

    group: str
    name: str
    value: str

    def load(self) -> object:
        """Import the module; the module, or the object in it."""
        module, _, attributes = self.value.partition(":")
        found: object = importlib.import_module(module)
        for attribute in filter(None, attributes.split(".")):
            found = getattr(found, attribute)
        return found


@record(frozen=True, slots=True)
class Installed:
    """A distribution with entry points of the groups asked for."""

    name: str
    version: str
    requires: tuple[str, ...]
    references: tuple[Reference, ...]


def installed(groups: Sequence[str]) -> list[Installed] | None:
    """Distributions with entry points of these groups, those left out that one of the same name shadows."""
    if any(hasattr(f, "find_distributions") and f is not PathFinder for f in sys.meta_path):
        return None
    wanted = [group.encode() for group in groups]
    first: dict[str, str] = {}
    mentioning: dict[str, None] = {}
    try:
        for folder in _metadata_folders():
            name = normalized(os.path.basename(folder).rpartition(".")[0].partition("-")[0])
            first.setdefault(name, folder)
            text = _read(folder, "entry_points.txt")
            if any(group in text for group in wanted):
                mentioning[name] = None
        found = [_distribution(first[name], groups) for name in mentioning]
    except (OSError, ValueError, _Unusual):  # ValueError: bytes that are no UTF-8, a NUL in a path
        return None
    return [distribution for distribution in found if distribution.references]


def _metadata_folders() -> Iterator[str]:
    for place in sys.path:
        if not isinstance(place, str) or place.lower().endswith(".egg"):
            raise _Unusual
        try:
            names = os.listdir(place or ".")
        except FileNotFoundError:
            continue
        for name in sorted(name for name in names if name.lower().endswith((".dist-info", ".egg-info"))):
            yield os.path.join(place or ".", name)


def _distribution(folder: str, groups: Sequence[str]) -> Installed:
    header = _read(folder, "METADATA" if folder.lower().endswith(".dist-info") else "PKG-INFO").partition(b"\n\n")[0]
    fields: dict[str, str] = {}
    requires = []
    for line in header.decode().splitlines():
        key, colon, value = line.partition(":")
        if colon and key.lower() in ("name", "version"):
            fields.setdefault(key.lower(), value.strip())
        elif colon and key.lower() == "requires-dist":
            requires.append(value.strip())
    if not (fields.get("name") and fields.get("version")):
        raise _Unusual
    references = dict.fromkeys(_references(_read(folder, "entry_points.txt").decode()))
    ours = tuple(r for g in groups for r in references if r.group == g)
    return Installed(fields["name"], fields["version"], tuple(requires), ours)


def _references(text: str) -> Iterator[Reference]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (group and name and equals):
            raise _Unusual
        if _is_reference(value):
            yield Reference(group, name, value)
        elif group.startswith("onnxplug."):  # with extras, or malformed
            raise _Unusual


def _is_reference(value: str) -> bool:
    """Whether it is dotted names of a module and, behind a colon, of an object in it."""
    module, colon, attributes = value.partition(":")
    return all(name.isidentifier() for path in (module, attributes)[: 1 + len(colon)] for name in path.split("."))


def _read(folder: str, name: str) -> bytes:
    """A file's content, b"" if there is none."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""
