"""Write docs/numerics.md from the tolerances the operator tests hold results to; with --check, fail where it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from operators.tolerance import EXACT, Tolerance  # noqa: E402
from operators.tolerances import TABLE  # noqa: E402

PAGE = ROOT / "docs" / "numerics.md"
TEXT = f"""\
<!-- Written by tools/numerics_table.py; do not edit. -->

# Numerics

`CPUExecutionProvider` is held to an evaluation in float64 of the same node by `nox -s operators`. Operators that are not listed here give
the float64 result rounded once to the output's type: each {EXACT.reason}.

The others may differ from it by the bound in their row, whose terms come from the error analysis of the operator:

* ulp: the spacing of the output type's numbers at the result;
* eps: the spacing at 1 of the arithmetic, 1.2e-7 for float32 and for half precision, which is computed in float32, and 2.2e-16 for double;
* S: the operator applied to the absolute values of its inputs, which bounds the rounding errors of a sum of products;
* M: the largest finite element of the output.

float16 and bfloat16 results lie within 1 ulp of the correctly rounded one unless the row says otherwise.

"Always" means that a float32 result lies within rtol 1e-4 / atol 1e-6 of the float64 one whatever the inputs. "Unless it cancels" means
that it does where the result is not small beside S or M; where terms cancel, no summation in float32 keeps an absolute 1e-6, and the bound
is relative to what was summed.

| operators | bound | half precision | rtol 1e-4, atol 1e-6 | why |
|---|---|---|---|---|
"""


def main(check: bool) -> int:
    """Write or compare the page."""
    text = page()
    if not check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        print("stale: docs/numerics.md; run python tools/numerics_table.py")
        return 1
    return 0


def page() -> str:
    """The whole page: one row for each tolerance."""
    operators: dict[Tolerance, list[str]] = {}
    for (domain, op_type), tolerance in sorted(TABLE.items()):
        operators.setdefault(tolerance, []).append(f"{domain}.{op_type}".lstrip("."))
    return TEXT + "".join(f"| {' | '.join(row(*entry))} |\n" for entry in operators.items())


def row(tolerance: Tolerance, names: list[str]) -> tuple[str, ...]:
    """Operators, bound, bound of half precision, how far the common tolerance holds, reason."""
    within = "unless it cancels" if tolerance.sums or tolerance.scaled else "always"
    return ", ".join(names), bound(tolerance), halves(tolerance), within, tolerance.reason


def bound(tolerance: Tolerance) -> str:
    """The formula of wider types."""
    terms = [
        f"{tolerance.ulps:g} ulp" if tolerance.ulps else "",
        f"{tolerance.sums:g} eps S" if tolerance.sums else "",
        f"{tolerance.scaled:g} eps M" if tolerance.scaled else "",
        f"{tolerance.floor:g}" if tolerance.floor else "",
    ]
    return " + ".join(filter(None, terms)) or "none"


def halves(tolerance: Tolerance) -> str:
    """The formula of half precision where it is wider than 1 ulp and the terms of the bound that are not in ulp."""
    if tolerance.halves < 2 and not tolerance.halves_scaled:
        return ""
    scaled = f" + {tolerance.halves_scaled:g} ulp of M" if tolerance.halves_scaled else ""
    return f"{tolerance.halves:g} ulp{scaled}"


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
