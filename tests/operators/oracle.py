"""What a node must answer, from whom: ``ReferenceExecutionProvider`` in float64, or an evaluation written here.

An oracle states the sentence of the specification it follows. It is asked where onnx.reference declines the node (see the provider's
catalogue and limits), and before it where ``wrong`` says that onnx.reference is known to differ from the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TypeProto

from onnxplug.contract.types import element_of
from operators.case import Case

Evaluation = Callable[[Case, list[Any]], Any]
"""From a case and its inputs (floats in float64) to the outputs: one, or a tuple."""


@dataclass(frozen=True)
class Oracle:
    """One evaluation and why it is needed."""

    evaluate: Evaluation
    sentence: str
    wrong: Callable[[Case], bool]


_oracles: dict[tuple[str, str], list[Oracle]] = {}


def never(_: Case) -> bool:
    """onnx.reference is right wherever it takes the node."""
    return False


def always(_: Case) -> bool:
    """onnx.reference is wrong or random."""
    return True


def oracle(
    *op_types: str, sentence: str, domain: str = "", wrong: Callable[[Case], bool] = never
) -> Callable[[Evaluation], Evaluation]:
    """Enter the decorated evaluation of these operators."""

    def enter(function: Evaluation) -> Evaluation:
        for op_type in op_types:
            _oracles.setdefault((domain, op_type), []).append(Oracle(function, sentence, wrong))
        return function

    return enter


def find_oracle(case: Case, *, override: bool) -> Oracle | None:
    """The oracle of a node; with ``override``, only one that knows better than onnx.reference."""
    from operators.oracles import load

    load()
    found = _oracles.get(case.key, ())
    return next((o for o in found if not override or o.wrong(case)), None)


def wide(value: Any) -> Any:
    """Floats in float64, other values as they are."""
    if isinstance(value, list):
        return [wide(item) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSUb":
        return value
    element = element_of(value.dtype)
    if "float" in element or element == "double":
        return value.astype(np.float64)
    if element in ("int4", "uint4", "int2", "uint2"):
        return value.astype(np.int64)
    return value


def evaluate(found: Oracle, case: Case, inputs: Sequence[Any]) -> list[Any]:
    """The outputs in the order asked for, not yet rounded to their types."""
    with np.errstate(all="ignore"):
        results = found.evaluate(case, [wide(value) for value in inputs])
    results = list(results) if isinstance(results, tuple) else [results]
    return [result for result, asked in zip(results, case.present, strict=False) if asked]


def by_reference(
    op_type: str, version: int, inputs: Sequence[Any], attributes: dict[str, Any], domain: str = "", outputs: int = 1
) -> Any:
    """What onnx.reference computes for a node of another version that means the same; one output, or a tuple."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)
    untyped = [helper.make_value_info(name, TypeProto()) for name in names if name]
    wanted = [helper.make_value_info(f"y{i}", TypeProto()) for i in range(outputs)]
    graph = helper.make_graph([node], "other", untyped, wanted)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, version)])
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if name}
    results = ReferenceEvaluator(model).run(None, feeds)
    return results[0] if outputs == 1 else tuple(results)
