"""Nodes that break the rules: each is made from a legal one, and ends in one of onnxplug's exceptions or, where legal
after all, in a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, helper

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS, Fail, InvalidArgument, InvalidGraph
from operators.case import Case, find_strategy
from operators.cells import Cell, schemas
from operators.draws import draw_cases
from operators.extent import CORE, DEEP, one_of_each_operator, one_of_each_version
from operators.model import CPU, feeds_of, model_of

STRANGE: dict[int, tuple[Any, ...]] = {
    AttributeProto.INT: (99, 2**62),
    AttributeProto.INTS: ([99, -99, 3], [2**31 - 1] * 2),
    AttributeProto.FLOAT: (float("nan"),),
    AttributeProto.FLOATS: ([1.0, 2.0, 3.0, 4.0, 5.0],),
    AttributeProto.STRING: ("nonsense",),
    AttributeProto.STRINGS: (["nonsense"],),
}
REFUSED = (InvalidGraph, InvalidArgument, Fail)


NEWEST = one_of_each_operator()
CELLS = NEWEST if CORE else tuple(one_of_each_version())


def legal_case(cell: Cell) -> Case:
    """A case of the cell, the same in every run."""
    found: list[Case] = []
    strategy = find_strategy(cell.domain, cell.op_type)
    assert strategy is not None
    draw_cases(cell, strategy, found.append, examples=2)
    return found[-1]


def model_without_initializers(case: Case) -> ModelProto:
    """The case's model with everything fed."""
    return onnx.load_from_string(model_of(dataclasses.replace(case, initializers=frozenset())))


def run(model: ModelProto, case: Case) -> None:
    """Create a session and run it on the case's values."""
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=[CPU])
    session.run(None, feeds_of(dataclasses.replace(case, initializers=frozenset())))


def refused(model: ModelProto, what: str) -> None:
    """Creation fails as the checks of graphs do."""
    with pytest.raises(REFUSED):
        onnxplug.InferenceSession(model.SerializeToString(), providers=[CPU])
        pytest.fail(f"accepted: {what}")


def settled(model: ModelProto, case: Case, what: str) -> None:
    """Creation and run end in a result or in one of onnxplug's exceptions."""
    try:
        run(model, case)
    except STATUS_ERRORS:
        pass
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__}: {error} ({case})")


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_breaking_the_schema(cell: Cell) -> None:
    """Unknown, mistyped and missing attributes, too many and too few operands: refused when the session is made."""
    case, schema = legal_case(cell), schemas()[cell[:3]]
    node_of = {name: model_without_initializers(case) for name in ("unknown", "inputs", "outputs", "few")}
    node_of["unknown"].graph.node[-1].attribute.append(helper.make_attribute("no_such_attribute", 1))
    if cell.op_type != "Constant":  # beside its value, where tools leave marks, onnxruntime looks at nothing
        refused(node_of["unknown"], "an unknown attribute")
    for name, formal in schema.attributes.items():
        model = model_without_initializers(case)
        node = model.graph.node[-1]
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
        if formal.required:
            refused(model, f"no attribute {name}")
        is_text = formal.type.value == AttributeProto.STRING
        node.attribute.append(helper.make_attribute(name, 3 if is_text else "text"))
        refused(model, f"attribute {name} of another kind")
    if len(case.inputs) <= schema.max_input < 100:
        node_of["inputs"].graph.node[-1].input.extend(["x0"] * (schema.max_input + 1))
        refused(node_of["inputs"], "too many inputs")
    if len(case.present) <= schema.max_output < 100:
        node_of["outputs"].graph.node[-1].output.extend(f"more{i}" for i in range(schema.max_output + 1))
        refused(node_of["outputs"], "too many outputs")
    if schema.min_input:
        del node_of["few"].graph.node[-1].input[:]
        refused(node_of["few"], "no inputs")


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_types_the_schema_forbids(cell: Cell) -> None:
    """An input of a type outside its type parameter is refused."""
    case, schema = legal_case(cell), schemas()[cell[:3]]
    for index, value in enumerate(case.inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        forbidden = [
            t
            for t in ("string", "bool", "complex64", "float", "int8", "float8e5m2")
            if f"tensor({t})" not in formal.types
        ]
        if not isinstance(value, np.ndarray) or not forbidden:
            continue
        model = model_without_initializers(case)
        if case.before:
            continue
        for info in model.graph.input:
            if info.name == f"x{index}":
                info.type.tensor_type.elem_type = onnxplug_code(forbidden[0])
        refused(model, f"input {index} of type {forbidden[0]}")


def onnxplug_code(element: str) -> int:
    """ONNX's number of an element type."""
    from onnxplug.contract.types import ELEMENT_CODES

    return ELEMENT_CODES[element]


@pytest.mark.parametrize("cell", CELLS if DEEP else NEWEST, ids=str)
def test_strange_values(cell: Cell) -> None:
    """Attributes out of range and inputs of other ranks and sizes never end in an exception that is not onnxplug's, nor
    in a loop as long as an attribute says."""
    case, schema = legal_case(cell), schemas()[cell[:3]]
    for name, formal in schema.attributes.items():
        if formal.type.value not in STRANGE or name == "dtype":
            continue
        for value in STRANGE[formal.type.value]:
            strange = dataclasses.replace(case, attributes={**case.attributes, name: value})
            settled(model_without_initializers(strange), strange, f"{name}={value}")
    for index, value in enumerate(case.inputs):
        if not isinstance(value, np.ndarray):
            continue
        for what, other in _deformed(value):
            inputs = [*case.inputs[:index], other, *case.inputs[index + 1 :]]
            for declared in ("shape", "type") if DEEP else ("type",):
                strange = dataclasses.replace(case, inputs=inputs, declared=declared)
                settled(model_without_initializers(strange), strange, f"input {index} {what}")


def _deformed(value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The same contents in another rank, fewer or no elements, and for integers other numbers."""
    yield "with one more axis", value[None]
    if value.ndim:
        yield "without its first axis", np.ascontiguousarray(np.resize(value, value.shape[1:]))
        yield "with one more row", np.resize(value, (value.shape[0] + 1, *value.shape[1:]))
        yield "empty", value[:0]
    if value.dtype.kind == "i" and value.ndim < 2:
        yield "out of range", np.full_like(value, 33)
        yield "negative", np.full_like(value, -99)


OVER_CHANNELS: dict[tuple[str, int], tuple[list[tuple[int, ...]], tuple[int, ...], dict[str, int]]] = {
    ("BatchNormalization", 15): ([(2, 4, 3, 3), (4,), (4,), (4,), (4,)], (1, 2, 3, 4), {}),
    ("InstanceNormalization", 22): ([(2, 4, 3, 3), (4,), (4,)], (1, 2), {}),
    ("GroupNormalization", 18): ([(2, 6, 3, 3), (3,), (3,)], (1, 2), {"num_groups": 3}),
    ("GroupNormalization", 21): ([(2, 4, 3, 3), (4,), (4,)], (1, 2), {"num_groups": 2}),
    ("Conv", 22): ([(2, 4, 5, 5), (6, 4, 3, 3), (6,)], (2,), {}),
    ("ConvTranspose", 22): ([(2, 4, 3, 3), (4, 6, 2, 2), (6,)], (2,), {}),
    ("DeformConv", 22): ([(1, 4, 3, 3), (6, 4, 1, 1), (1, 2, 3, 3), (6,)], (3,), {}),
    ("RNN", 22): ([(3, 2, 4), (1, 4, 4), (1, 4, 4), (1, 8)], (3,), {"hidden_size": 4}),
    ("GRU", 22): ([(3, 2, 4), (1, 12, 4), (1, 12, 4), (1, 24)], (3,), {"hidden_size": 4}),
    ("LSTM", 22): ([(3, 2, 4), (1, 16, 4), (1, 16, 4), (1, 32)], (3,), {"hidden_size": 4}),
}
"""Operators with one number for each channel: shapes of legal inputs, which of these are vectors, attributes."""


@pytest.mark.parametrize(("operator", "legal"), OVER_CHANNELS.items(), ids=str)
def test_vectors_of_another_length(operator: tuple[str, int], legal: tuple[Any, ...]) -> None:
    """A vector over channels has one number for each: it is neither broadcast nor cut."""
    shapes, vectors, attributes = legal
    types = {constraint.type_param_str: "tensor(float)" for constraint in schemas()["", *operator].type_constraints}
    cell = Cell("", *operator, "T", "tensor(float)")
    for index in vectors:
        length = shapes[index][-1]
        for other in (1, length - 1, length + 1, 2 * length):
            given = [*shapes[:index], (*shapes[index][:-1], other), *shapes[index + 1 :]]
            case = Case([np.ones(shape, np.float32) for shape in given], attributes, 1, types, cell=cell)
            with pytest.raises((InvalidGraph, InvalidArgument, Fail)):
                run(model_without_initializers(case), case)
                pytest.fail(f"input {index} of {operator} with length {other} for {length}")


def test_feeds_that_do_not_fit() -> None:
    """A feed of another type or rank than declared is an InvalidArgument."""
    case = legal_case(Cell("", "Relu", 14, "T", "tensor(float)"))
    case = dataclasses.replace(case, declared="shape", inputs=[np.ones((2, 3), np.float32)])
    session = onnxplug.InferenceSession(model_of(case), providers=[CPU])
    for wrong in (np.ones((2, 3)), np.ones((2, 3, 1), np.float32), np.ones((3, 2), np.float32)):
        with pytest.raises(InvalidArgument):
            session.run(None, {"x0": wrong})
