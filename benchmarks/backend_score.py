"""The ONNX backend data through sessions with a provider first and the CPU provider behind it: how many cases are right, and how many ran
on the first alone.

::

    python benchmarks/backend_score.py CUDAExecutionProvider

The cases are those of ``tests/test_backend_data.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

CPU = "CPUExecutionProvider"
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "CUDAExecutionProvider": {"use_tf32": 0, "cudnn_conv_algo_search": "HEURISTIC"}
}
"""Of providers whose defaults round more than the tolerances of the data allow, or search long for what is fast."""
DATA = Path(__file__).parent.parent / "tests" / "test_backend_data.py"


def names() -> list[str]:
    """The cases."""
    return list(_backend_data().cases())


def outcome(provider: str, name: str) -> dict[str, Any]:
    """Whether a case is right and ``provider`` ran every node of it; or the error."""
    data = _backend_data()
    first: list[Any] = [(provider, dict(OPTIONS[provider]))] if provider in OPTIONS else [provider]
    session = data.check(data.cases()[name], [*first, *[CPU] * (provider != CPU)])
    alone = set(session.placement().values()) <= {provider}
    session.close()
    return {"on_first": alone}


def totals(provider: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the outcomes of cases, each with its name as "item", add up to."""
    wrong = {row["item"]: row["error"].splitlines()[0][:200] for row in rows if "error" in row}
    right = [row for row in rows if "error" not in row]
    first = sum(row["on_first"] for row in right)
    return {"provider": provider, "cases": len(rows), "right": len(right), "on_first": first, "wrong": wrong}


def score(provider: str, chosen: Iterable[str] | None = None) -> dict[str, Any]:
    """Number of cases, of those that are right, of those in which ``provider`` ran every node; and the errors of the others."""
    rows = []
    for name in names() if chosen is None else chosen:
        try:
            rows.append({"item": name, **outcome(provider, name)})
        except Exception as error:  # whatever a provider does wrong is a result
            rows.append({"item": name, "error": f"{type(error).__name__}: {error}"})
    return totals(provider, rows)


@functools.cache
def _backend_data() -> Any:
    """The module with the cases, by its path: others have the same name."""
    spec = importlib.util.spec_from_file_location("backend_score_data", DATA)
    assert spec is not None and spec.loader is not None
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    return data


if __name__ == "__main__":
    print(json.dumps(score(sys.argv[1]), indent=1))
