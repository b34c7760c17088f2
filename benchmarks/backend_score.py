"""The ONNX backend data through sessions with a provider first and the CPU provider behind it: how many cases are right, and how many ran
on the first alone.

::

    python benchmarks/backend_score.py CUDAExecutionProvider

The cases are those of ``tests/test_backend_data.py``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CPU = "CPUExecutionProvider"
DATA = Path(__file__).parent.parent / "tests" / "test_backend_data.py"


def score(provider: str, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Number of cases, of those that are right, of those in which ``provider`` ran every node; and the errors of the others."""
    data = _backend_data()
    cases = data.cases()
    chosen = list(cases) if names is None else list(names)
    right, first, wrong = 0, 0, {}
    for name in chosen:
        try:
            session = data.check(cases[name], list(dict.fromkeys([provider, CPU])))
        except Exception as error:  # whatever a provider does wrong is a result
            wrong[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            continue
        right += 1
        first += set(session.placement().values()) <= {provider}
        session.close()
    return {"provider": provider, "cases": len(chosen), "right": right, "on_first": first, "wrong": wrong}


def _backend_data() -> Any:
    """The module with the cases, by its path: others have the same name."""
    spec = importlib.util.spec_from_file_location("backend_score_data", DATA)
    assert spec is not None and spec.loader is not None
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    return data


if __name__ == "__main__":
    print(json.dumps(score(sys.argv[1]), indent=1))
