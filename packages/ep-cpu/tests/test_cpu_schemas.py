"""Schemas of operators that onnx does not define: onnxruntime's signatures, and shapes as the kernels make them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_contrib
import test_contrib_attention
import test_contrib_decoders
import test_contrib_hybrid
import test_contrib_packed
import test_contrib_products
from one_node import Case, by_kernel
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper, shape_inference
from onnx.defs import OpSchema

from onnxplug.plan.layers import MICROSOFT, output_shapes
from onnxplug.plan.rules import _rules
from onnxplug_ep_cpu.schemas import op_schemas
from onnxplug_kernels.catalogue import catalogue

CASES = [
    *test_contrib.CASES,
    *test_contrib_attention.CASES,
    *test_contrib_decoders.CASES,
    *test_contrib_decoders.SPARSE,
    *test_contrib_products.CASES,
    *test_contrib_hybrid.CASES,
    *test_contrib_packed.CASES,
    *test_contrib_packed.OWN,
]
SCHEMAS = {(s.domain, s.name): s for s in op_schemas()}
OF_DATA = {
    "Range": "its length follows from the numbers",
    "Unique": "how many values differ",
    "Tokenizer": "how many words there are",
    "DynamicTimeWarping": "how long the path is",
    "BifurcationDetector": "how many tokens were predicted right",
}

OF_1_32 = {"GatedDeltaNet", "GatherPacked", "MatMulPacked", "MoEGroupRouter", "SwiGLU"}
"""Operators that came with that release of onnxruntime, or are others since."""


def formals(parameters: Any) -> list[Any]:
    return [(p.name, str(p.option).split(".")[-1], frozenset(p.types)) for p in parameters]


def default(proto: Any) -> Any:
    if isinstance(proto, bytes):
        proto = AttributeProto.FromString(proto)
    return helper.get_attribute_value(proto) if proto.type else None


def test_every_contrib_kernel_has_a_schema() -> None:
    assert {(e.domain, e.op_type) for e in catalogue() if e.domain == "com.microsoft"} <= set(SCHEMAS)
    assert op_schemas() is op_schemas()


def test_they_are_listed_once_among_all_schemas() -> None:
    from onnxplug.capi.onnxruntime_pybind11_state import get_all_operator_schema

    listed = [(s.domain, s.name, s.since_version) for s in get_all_operator_schema()]
    assert len(listed) == len(set(listed))
    assert {(s.domain, s.name, s.since_version) for s in op_schemas()} <= set(listed)


@pytest.mark.parametrize("schema", op_schemas(), ids=lambda s: f"{s.domain}.{s.name}")
def test_signatures_are_those_of_onnxruntime(schema: OpSchema) -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = [
        s
        for s in state.get_all_operator_schema()
        if (s.domain, s.name, s.since_version) == (schema.domain, schema.name, 1)
    ]
    older = state.get_version_string().startswith("1.31.")
    if not theirs or (older and schema.name == "GatedDeltaNet"):  # whose types changed
        assert schema.domain == "com.microsoft"
        assert schema.name == "SimplifiedLayerNormalization" or (older and schema.name in OF_1_32)
        return
    their = theirs[0]
    assert (schema.min_input, schema.min_output) == (their.min_input, their.min_output)
    ours, wanted = signature(schema), signature(their)
    if older:  # which lacks what came with 1.32, all of it optional
        for mine, their_own in zip(ours[:2], wanted[:2], strict=True):
            assert all(option == "Optional" for _, option, _ in mine[len(their_own) :])
            del mine[len(their_own) :]
        for name in ours[2].keys() - wanted[2].keys():
            assert not ours[2].pop(name)[1]
    assert ours == wanted


def signature(schema: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Inputs, outputs and attributes."""
    attributes = {
        n: (str(getattr(a.type, "name", a.type)).split(".")[-1], a.required, default(_default(a)))
        for n, a in schema.attributes.items()
    }
    return formals(schema.inputs), formals(schema.outputs), attributes


def _default(attribute: Any) -> Any:
    return attribute._default_value if hasattr(attribute, "_default_value") else attribute.default_value


def code(array: np.ndarray) -> int:
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def infer(case: Case, dims: Any, constants: bool) -> list[TypeProto]:
    """Types of the outputs, inputs being shaped as ``dims`` of the array says; small integers given as constants if asked for."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    given = {n: x for n, x in zip(names, case.inputs, strict=True) if x is not None}
    outputs = [n or f"unasked{i}" for i, n in enumerate(case.names)]
    node = helper.make_node(case.op_type, names, outputs, domain=case.domain, **case.attributes)
    types = {n: helper.make_tensor_type_proto(code(x), dims(x)) for n, x in given.items()}
    data = {
        n: numpy_helper.from_array(x, n) for n, x in given.items() if constants and x.dtype.kind == "i" and x.size < 20
    }
    imports = [helper.make_opsetid(case.domain, 1)]
    found = shape_inference.infer_node_outputs(
        SCHEMAS[case.domain, case.op_type], node, types, data, opset_imports=imports
    )
    return [found.get(n, TypeProto()) for n in outputs]


def shape_of(type_: TypeProto) -> list[int | str | None] | None:
    if not type_.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in type_.tensor_type.shape.dim]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_types_and_shapes_are_inferred(case: Case) -> None:
    found = [t for t, name in zip(infer(case, lambda x: x.shape, constants=True), case.names, strict=True) if name]
    for type_, made in zip(found, by_kernel(case), strict=True):
        assert type_.tensor_type.elem_type == code(made)
        shape = shape_of(type_)
        if case.op_type in OF_DATA:
            assert shape is not None and len(shape) == made.ndim
        else:
            assert shape == list(made.shape)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_unknown_stays_unknown(case: Case) -> None:
    """Symbols and unknown ranks pass through; whatever is claimed of a shape is true of the kernel's result."""
    symbols = infer(case, lambda x: [f"d{n}" for n in x.shape], constants=False)
    unknown = infer(case, lambda x: None, constants=False)
    made = iter(by_kernel(case))
    for symbolic, rankless, name in zip(symbols, unknown, case.names, strict=True):
        if not name:
            continue
        array = next(made)
        assert symbolic.tensor_type.elem_type == rankless.tensor_type.elem_type == code(array)
        for type_ in (symbolic, rankless):
            shape = shape_of(type_)
            if shape is not None:
                assert len(shape) == array.ndim
                for claimed, size in zip(shape, array.shape, strict=True):
                    assert claimed in (None, size, f"d{size}")


PLANNED = [case for case in CASES if case.domain == MICROSOFT and (case.domain, case.op_type) in _rules]


@pytest.mark.parametrize("case", PLANNED, ids=str)
def test_a_plan_knows_the_shapes_that_the_kernel_gives(case: Case) -> None:
    node = SimpleNamespace(
        domain=case.domain, op_type=case.op_type, attributes=case.attributes, inputs=case.inputs, outputs=case.names,
        since_version=1,
    )  # fmt: skip
    found = output_shapes(node, [None if x is None else x.shape for x in case.inputs], case.inputs)
    if found is not None:
        assert [s for s, name in zip(found, case.names, strict=True) if name] == [
            made.shape for made in by_kernel(case)
        ]
    assert found is not None or case.attributes.get("ceil_mode")


def test_a_wrong_rank_is_refused() -> None:
    case = Case("com.microsoft", "CDist", [np.zeros((2, 3, 4), np.float32), np.zeros((2, 4), np.float32)])
    with pytest.raises(ValueError, match="rank 2 is wanted"):
        infer(case, lambda x: x.shape, constants=False)
