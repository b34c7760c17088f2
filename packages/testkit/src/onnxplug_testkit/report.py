"""The report of a run: versioned JSON, a summary in words, re-checking and comparing."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx

import onnxplug
from onnxplug.contract import CONTRACT_VERSION, Available
from onnxplug_testkit import __version__
from onnxplug_testkit.check import checks
from onnxplug_testkit.kernels.claim import CLAIM_CHECKS
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.levels import up_to

VERSION = 1
"""Of the report's form."""
_FIELDS = (
    "report_version", "kit", "contract", "verdict", "provider", "distribution", "devices", "machine", "level", "profile", "seed", "command",
    "time", "counts", "not_run", "waiver_problems", "tests", "cells", "digest",
)  # fmt: skip


class ReportError(ValueError):
    """A report that is not what it says."""


def build(kit: Kit, command: Sequence[str]) -> dict[str, Any]:
    """The report of a finished run."""
    ledger = kit.ledger
    data: dict[str, Any] = {
        "report_version": VERSION,
        "kit": __version__,
        "contract": ".".join(map(str, CONTRACT_VERSION)),
        "verdict": ledger.verdict(),
        "provider": {
            "name": kit.subject.name, "vendor": kit.subject.spec.vendor, "options": dict(kit.subject.options),
            "limit_option": kit.subject.limit_option,
        },
        "distribution": distribution(kit.subject.distribution),
        "devices": _devices(kit),
        "machine": {
            "system": platform.platform(), "python": platform.python_version(), "onnxplug": onnxplug.__version__, "onnx": onnx.__version__,
        },
        "level": kit.level,
        "profile": str(kit.profile) if kit.profile is not None else None,
        "seed": kit.seed,
        "command": list(command),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "counts": {"cells": ledger.counts(), "tests": _test_counts(kit), "not_selected": ledger.deselected},
        "not_run": ledger.not_run,
        "waiver_problems": list(ledger.unused_waivers),
        **ledger.to_dict(),
    }  # fmt: skip
    return {**data, "digest": digest(data)}


def _test_counts(kit: Kit) -> dict[str, int]:
    return dict(sorted(Counter(t.status for t in kit.ledger.tests.values()).items()))


def _devices(kit: Kit) -> dict[str, Any]:
    """What ``check()`` and ``devices()`` say: names and, where a provider tells them, driver versions."""
    answer = kit.subject.spec.check()
    listed = [
        {"type": d.type, "id": d.id, "vendor": d.vendor, "name": d.name, **dict(d.metadata)}
        for d in kit.subject.spec.devices()
    ]
    return {"check": answer.detail if isinstance(answer, Available) else answer.reason, "list": listed}


def distribution(name: str) -> dict[str, str]:
    """A distribution's name, version and the SHA-256 of its RECORD, which lists a hash for every installed file."""
    if not name:
        return {"name": "", "version": "", "record_sha256": ""}
    found = metadata.distribution(name)
    record = found.read_text("RECORD")
    return {
        "name": name,
        "version": found.version,
        "record_sha256": hashlib.sha256(record.encode()).hexdigest() if record is not None else "",
    }


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 over the report without its own digest."""
    plain = {k: v for k, v in data.items() if k != "digest"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write(data: Mapping[str, Any], path: Path) -> None:
    """One line per test and cell, so that versions of a report can be told apart line by line."""
    head = {k: v for k, v in data.items() if k not in ("tests", "cells")}
    lines = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    for name in ("tests", "cells"):
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in data[name])
        lines += f',\n "{name}": [\n  {rows}\n ]' if rows else f',\n "{name}": []'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines + "\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A report from a file. ReportError when it is none, or one of a version this kit does not know."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read: {error}") from error
    missing = [f for f in _FIELDS if f not in data]
    if missing:
        raise ReportError(f"{path} is no conformance report: it has no {missing[0]}")
    if data["report_version"] != VERSION:
        raise ReportError(f"{path} has report version {data['report_version']}, this kit reads {VERSION}")
    return data


def problems(data: Mapping[str, Any]) -> Iterator[str]:
    """What in a report contradicts itself, or the distribution installed here."""
    if digest(data) != data["digest"]:
        yield "the digest does not fit: the report was changed after it was written"
    if not isinstance(data["verdict"], str) or data["verdict"] != _verdict(data):
        yield f"the verdict is given as {data['verdict']}, its tests and cells say {_verdict(data)}"
    yield from _omissions(data)
    statuses = Counter(cell["status"] for cell in data["cells"])
    if any(statuses[s] != n for s, n in data["counts"]["cells"].items()):
        yield "the counts of cells are not those of the cells listed"
    if data["contract"] != ".".join(map(str, CONTRACT_VERSION)):
        yield f"it is about contract {data['contract']}, this onnxplug has {'.'.join(map(str, CONTRACT_VERSION))}"
    name = data["distribution"]["name"]
    if name:
        try:
            here = distribution(name)
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed here, so that its files cannot be compared"
        else:
            if here != data["distribution"]:
                yield f"{name} {here['version']} installed here is not the distribution that was judged ({data['distribution']['version']})"


def _omissions(data: Mapping[str, Any]) -> Iterator[str]:
    """What a whole run of the level, by this version of the kit, would list and the report does not."""
    if Counter(t["status"] for t in data["tests"]) != data["counts"]["tests"]:
        yield "the counts of tests are not those of the tests listed"
    if any(c["status"] == "proven" and (not c["tests"] or not c["oracles"]) for c in data["cells"]):
        yield "a cell is given as proven without a trial or without an oracle"
    if data["not_run"] or data["counts"]["not_selected"] or data["kit"] != __version__:
        return
    levels = up_to(data["level"])
    wanted = [name for name, check in checks().items() if check.level in levels]
    if "kernels" in levels:
        wanted += [name for name in CLAIM_CHECKS if data["profile"] or name != "kernels.profile"]
    missing = sorted(set(wanted) - {t["id"] for t in data["tests"]})
    if missing:
        yield f"a run of level {data['level']} has {len(missing)} tests that are not listed, {missing[0]} among them"


def _verdict(data: Mapping[str, Any]) -> str:
    """The verdict that follows from what is listed."""
    if data["not_run"]:
        return "not_run"
    tests = Counter(t["status"] for t in data["tests"])
    cells = Counter(c["status"] for c in data["cells"])
    partial = data["counts"]["not_selected"]
    if tests["failed"] or cells["failed"] or data["waiver_problems"] or (cells["unproven"] and not partial):
        return "failed"
    if partial:
        return "partial"
    waived = tests["waived"] + tests["expected"]
    return f"conformant with {waived} waiver{'s' * (waived != 1)}" if waived else "conformant"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What changed from one report to another, a line each: verdict, tests, cells."""
    if old["verdict"] != new["verdict"]:
        yield f"verdict: {old['verdict']} -> {new['verdict']}"
    yield from _changes(
        "test", {t["id"]: t["status"] for t in old["tests"]}, {t["id"]: t["status"] for t in new["tests"]}
    )
    yield from _changes("cell", _cells(old), _cells(new))


def _cells(data: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{c['domain']}.{c['op_type']}-{c['version']}-{c['parameter']}-{c['type']}".lstrip("."): c["status"]
        for c in data["cells"]
    }


def _changes(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, "absent"), new.get(name, "absent")
        if before != after:
            yield f"{kind} {name}: {before} -> {after}"


def summary(kit: Kit) -> Iterator[str]:
    """The verdict in words."""
    ledger = kit.ledger
    if ledger.not_run:
        yield f"not run: {kit.subject.name} cannot be used here: {ledger.not_run}"
        return
    yield f"{kit.subject.name}: {ledger.verdict()} at level {kit.level} (kit {__version__}, seed {kit.seed}, {sys.platform})"
    if kit.with_kernels:
        counts = ledger.counts()
        shown = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        yield f"contract, {len(ledger.cells)} cells" + (f": {shown}" if shown else "")
    if ledger.deselected:
        yield f"partial: {ledger.deselected} tests of this level were not run"
    yield from ledger.unused_waivers
