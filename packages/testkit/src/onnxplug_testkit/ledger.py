"""What a run of the kit found: one entry for each test, one for each claimed cell, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxplug_testkit.kernels.cells import Cell

CELL_STATUSES = ("proven", "failed", "waived", "unproven")


@dataclass
class TestEntry:
    """One test: ``status`` is passed, failed, unsupported (``detail`` names the capability), waived or expected."""

    id: str
    status: str
    detail: str = ""
    seconds: float = 0


@dataclass
class CellEntry:
    """One claimed cell: how many trials were run on it, the worst error, whose results it was compared with."""

    tests: int = 0
    failed: int = 0
    waived: list[str] = field(default_factory=list)
    worst_ulp: float = 0
    oracles: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """failed before waived before proven; without an executed trial unproven."""
        if self.failed:
            return "failed"
        if self.waived:
            return "waived"
        return "proven" if self.tests else "unproven"


@dataclass
class Ledger:
    """Everything that is reported. ``cells`` holds every cell claimed at a level that looks at kernels."""

    tests: dict[str, TestEntry] = field(default_factory=dict)
    cells: dict[Cell, CellEntry] = field(default_factory=dict)
    deselected: int = 0
    not_run: str = ""
    unused_waivers: list[str] = field(default_factory=list)

    def claim(self, cells: Iterable[Cell]) -> None:
        """Enter claimed cells; the denominator."""
        for cell in cells:
            self.cells.setdefault(cell, CellEntry())

    def proved(self, cells: Iterable[Cell], oracle: str, ulp: float) -> None:
        """A trial passed."""
        for cell in cells:
            entry = self.cells.setdefault(cell, CellEntry())
            entry.tests += 1
            entry.oracles.add(oracle)
            entry.worst_ulp = max(entry.worst_ulp, ulp)

    def broken(self, cells: Iterable[Cell], reason: str) -> None:
        """A trial failed."""
        for cell in cells:
            entry = self.cells.setdefault(cell, CellEntry())
            entry.tests += 1
            entry.failed += 1
            entry.reasons.append(reason)

    def unreached(self, reasons: Mapping[Cell, str]) -> None:
        """No trial was run on these, and why."""
        for cell, reason in reasons.items():
            self.cells.setdefault(cell, CellEntry()).reasons.append(reason)

    def waive(self, cells: Iterable[Cell], test: str) -> None:
        """A trial's failure is waived; what it would have proved is neither proven nor failed."""
        for cell in cells:
            self.cells.setdefault(cell, CellEntry()).waived.append(test)

    def counts(self) -> dict[str, int]:
        """Claimed cells by status."""
        found = dict.fromkeys(CELL_STATUSES, 0)
        for entry in self.cells.values():
            found[entry.status] += 1
        return found

    def verdict(self) -> str:
        """not_run, failed, partial, "conformant with n waivers" or conformant."""
        if self.not_run:
            return "not_run"
        counts = self.counts()
        bad = any(t.status == "failed" for t in self.tests.values()) or counts["failed"] or self.unused_waivers
        if bad or (counts["unproven"] and not self.deselected):
            return "failed"
        if self.deselected:
            return "partial"
        waived = sum(t.status in ("waived", "expected") for t in self.tests.values())
        return f"conformant with {waived} waiver{'s' * (waived != 1)}" if waived else "conformant"

    def to_dict(self) -> dict[str, Any]:
        """Tests and cells, fit for JSON."""
        return {
            "tests": [
                {"id": t.id, "status": t.status, "detail": t.detail, "seconds": round(t.seconds, 4)} for t in self.tests.values()
            ],
            "cells": [
                {
                    "domain": cell.domain, "op_type": cell.op_type, "version": cell.version, "parameter": cell.parameter, "type": cell.type,
                    "status": entry.status, "tests": entry.tests, "worst_ulp": entry.worst_ulp, "oracles": sorted(entry.oracles),
                    "waivers": sorted(set(entry.waived)), "reasons": entry.reasons[:3],
                }
                for cell, entry in self.cells.items()
            ],
        }  # fmt: skip
