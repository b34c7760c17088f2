"""Kernels marked portable, run by a library that has the Array API standard and nothing else.

A case is taken where that library knows all its element types (no halves, strings, sequences, 4- and 8-bit floats).
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.runner import Runner
from test_backend_data import COVERED, attribute, entry_for, value

xp = pytest.importorskip("array_api_strict")

KNOWN = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)


def known(values: list[Any]) -> bool:
    return all(v is None or (isinstance(v, np.ndarray) and v.dtype in KNOWN) for v in values)


def portable(case: Any) -> bool:
    return entry_for(case.model).portable and all(
        known([value(v) for v in (*inputs, *outputs)]) for inputs, outputs in case.data_sets
    )


@pytest.mark.parametrize("case", [c for c in COVERED if portable(c)], ids=lambda c: c.name)
def test_with_the_standard_alone(case: Any) -> None:
    node = case.model.graph.node[0]
    entry = entry_for(case.model)
    attributes = {a.name: attribute(a) for a in node.attribute}
    if "n_outputs" in inspect.signature(entry.function).parameters:
        attributes["n_outputs"] = len(node.output)
    for data_inputs, data_outputs in case.data_sets:
        feeds = dict(zip([i.name for i in case.model.graph.input], map(value, data_inputs), strict=False))
        given = [feeds.get(name) if name else None for name in node.input]
        inputs = [x if x is None or place in entry.host_inputs else xp.asarray(x) for place, x in enumerate(given)]
        got = entry.function(xp, *inputs, **attributes)
        got = got if isinstance(got, tuple) else (got,)
        outputs = [as_numpy(y) for name, y in zip(node.output, got, strict=False) if name]
        Runner.assert_similar_outputs([value(o) for o in data_outputs], outputs, case.rtol, case.atol)


def as_numpy(y: Any) -> Any:
    assert type(y).__module__.startswith("array_api_strict"), f"the kernel left the namespace: {type(y)}"
    return np.asarray(y)
