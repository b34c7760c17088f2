"""The checks on the claim as a whole, made when the trials are over."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnxplug_testkit.check import fail
from onnxplug_testkit.kernels.cells import Cell
from onnxplug_testkit.ledger import Ledger
from onnxplug_testkit.profiles import Profile

SHOWN = 12
CLAIM_CHECKS: Mapping[str, str] = {
    "kernels.claims_something": "The registry claims at least one cell.",
    "kernels.every_cell_is_proven": "Each claimed cell was executed and judged at least once.",
    "kernels.claim_is_steady": "After the trials the registry claims what it claimed before them.",
    "kernels.profile": "Each cell of the must-pass profile is claimed and proven.",
}


def claims_something(ledger: Ledger) -> None:
    """See ``CLAIM_CHECKS``."""
    if not ledger.cells:
        fail(
            "kernels.claims_something",
            "contract, 0 cells: the registry is empty (a provider that compiles registers what it compiles: "
            "get_kernel_registry in 'Writing an execution provider', 5)",
        )


def every_cell_is_proven(ledger: Ledger, waived: Mapping[str, object]) -> None:
    """See ``CLAIM_CHECKS``; ``waived`` are the names of tests with a waiver."""
    left = [
        cell for cell, entry in ledger.cells.items() if entry.status == "unproven" and cell_test(cell) not in waived
    ]
    if left:
        reasons = sorted({reason for cell in left for reason in ledger.cells[cell].reasons[:1]})
        shown = ", ".join(map(str, left[:SHOWN])) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        fail(
            "kernels.every_cell_is_proven",
            f"{len(left)} of {len(ledger.cells)} cells are unproven: {shown} ({'; '.join(reasons[:4])})",
        )


def claim_is_steady(before: Collection[Cell], after: Collection[Cell]) -> None:
    """See ``CLAIM_CHECKS``."""
    changed = sorted(set(before) ^ set(after))
    if changed:
        what = "claimed only now" if changed[0] in after else "claimed no more"
        fail("kernels.claim_is_steady", f"{len(changed)} cells differ: {changed[0]} is {what}")


def keeps_profile(ledger: Ledger, profile: Profile) -> None:
    """See ``CLAIM_CHECKS``."""
    wanting = []
    for wanted in profile.cells:
        versions = sorted({c.version for c in ledger.cells if (c.domain, c.op_type) == wanted[:2]})
        entry = ledger.cells.get(Cell(wanted[0], wanted[1], versions[-1], *wanted[2:])) if versions else None
        if entry is None or entry.status not in ("proven", "waived"):
            wanting.append(f"{wanted[1]} {wanted[2]}={wanted[3]} ({entry.status if entry else 'not claimed'})")
    if wanting:
        shown = ", ".join(wanting[:SHOWN]) + (f" and {len(wanting) - SHOWN} more" if len(wanting) > SHOWN else "")
        fail("kernels.profile", f"profile {profile} lacks {len(wanting)} of {len(profile.cells)} cells: {shown}")


def cell_test(cell: Cell) -> str:
    """The name under which a cell without an executed trial may be waived."""
    return f"kernels.cell[{cell}]"
