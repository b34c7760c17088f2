"""Discovery by metadata: reads ``entry_points.txt`` of the installed distributions and imports nothing.

``importlib.metadata.entry_points()`` parses the entry points of every distribution and fails as a whole when one file
is malformed. Here only files that mention one of our groups are parsed, each on its own: some 20 us per installed
distribution, once per process.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from onnxplug.contract.records import record
from onnxplug.plugins.installed import Reference, installed
from onnxplug.plugins.record import PluginRecord, describe
from onnxplug.plugins.switches import Switches, logger, normalized

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

PROVIDERS = "onnxplug.providers"
OBSERVERS = "onnxplug.observers"


@record(frozen=True, slots=True)
class Found:
    """One entry point of one of our groups. ``entry_point`` None: the distribution's metadata could not be read."""

    group: str
    record: PluginRecord
    entry_point: EntryPoint | Reference | None


@functools.cache
def scan() -> tuple[Found, ...]:
    """All entry points of our groups, sorted by name; read once per process (``forget`` makes the next call read
    again)."""
    started = time.perf_counter()
    light = installed((PROVIDERS, OBSERVERS))
    if light is not None:
        found = [_found(d.name, d.version, d.requires, e) for d in light for e in d.references]
    else:
        found = [entry for distribution in _distributions() for entry in _entries(distribution)]
    logger.info("discover: %d entry points in %.1f ms", len(found), (time.perf_counter() - started) * 1e3)
    return tuple(sorted(found, key=lambda f: (f.record.provider, f.record.distribution, f.record.entry_point)))


def forget() -> None:
    """Make the next ``scan`` see distributions that were installed or removed meanwhile."""
    import importlib

    importlib.invalidate_caches()
    scan.cache_clear()


def judge(claims: Sequence[PluginRecord], switches: Switches) -> list[PluginRecord]:
    """The providers' records with what metadata alone decides: disabled by a switch, or a name claimed by two
    distributions."""
    judged = [_switched(record, switches) for record in claims]
    claimants: dict[str, list[PluginRecord]] = defaultdict(list)
    for each in judged:
        if each.state == "discovered":
            claimants[each.provider].append(each)
    rivals = {name: records for name, records in claimants.items() if len(records) > 1}
    return [_clash(r, rivals[r.provider]) if r.state == "discovered" and r.provider in rivals else r for r in judged]


def _switched(record: PluginRecord, switches: Switches) -> PluginRecord:
    reason = switches.forbids(record.provider, record.distribution) if record.state == "discovered" else None
    if reason is None:
        return record
    return replace(record, state="disabled", error=reason, fix="change or unset that environment variable")


def _clash(record: PluginRecord, claimants: Sequence[PluginRecord]) -> PluginRecord:
    sources = " and ".join(f"{c.source} ({c.entry_point})" for c in claimants)
    return replace(
        record,
        state="clashing",
        error=f"{sources} claim this name",
        fix=f"uninstall one of them, or switch it off with ONNXPLUG_DISABLE={claimants[-1].distribution}, or list all"
        f" providers to be used in ONNXPLUG_PROVIDERS, this one as {record.provider}@{record.distribution}",
    )


def _distributions() -> list[Distribution]:
    """Distributions that mention one of our groups, without those shadowed by one of the same name earlier on
    ``sys.path``."""
    from importlib import metadata

    mentioning: dict[str, Distribution] = {}
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, UnicodeDecodeError):
            continue
        if PROVIDERS in text or OBSERVERS in text:
            name = _name(distribution)
            try:
                mentioning.setdefault(normalized(name), metadata.distribution(name))
            except (metadata.PackageNotFoundError, ValueError):
                mentioning.setdefault(normalized(name), distribution)
    return list(mentioning.values())


def _entries(distribution: Distribution) -> list[Found]:
    name = _name(distribution)
    try:
        version, requires = distribution.version, tuple(distribution.requires or ())
        ours = [e for group in (PROVIDERS, OBSERVERS) for e in distribution.entry_points.select(group=group)]
    except Exception as error:  # whatever a malformed file makes the standard library's parser raise
        fix = f"reinstall it: pip install --force-reinstall {name}"
        text = f"its metadata cannot be read: {describe(error)}"
        return [Found(PROVIDERS, PluginRecord("", name, state="broken", error=text, fix=fix), None)]
    return [_found(name, version or "", requires, e) for e in dict.fromkeys(ours)]


def _found(distribution: str, version: str, requires: tuple[str, ...], e: EntryPoint | Reference) -> Found:
    kind: Literal["provider", "observer"] = "provider" if e.group == PROVIDERS else "observer"
    return Found(e.group, PluginRecord(e.name, distribution, version, e.value, kind=kind, requires=requires), e)


def _name(distribution: Distribution) -> str:
    with contextlib.suppress(Exception):  # what the standard library raises for a missing METADATA file differs
        if distribution.name:
            return distribution.name
    return f"unnamed distribution in {distribution.locate_file('')}"
