"""The kernels that the provider claims, without a GPU: the same functions with NumPy for shapes, types and values; with arrays that
NumPy cannot read; and every name they ask of the namespace, looked up in CuPy."""

from __future__ import annotations

import ast
import contextlib
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import defs
from onnx.backend.test.runner import Runner
from test_backend_data import COVERED, attribute, entry_for, value

import onnxplug_kernels
from onnxplug.contract import Kernel, KernelDef, KernelRegistry, TensorSpec
from onnxplug_ep_cuda.codegen.kernel import CountedKernel
from onnxplug_ep_cuda.codegen.table import ALONE
from onnxplug_ep_cuda.kernels import elementwise, move
from onnxplug_ep_cuda.namespace import Namespace
from onnxplug_ep_cuda.registry import HOST_RESULTS, ArrayKernel, claimable, registry
from onnxplug_kernels.refusals import Refusal

SOURCES = Path(onnxplug_kernels.__file__).parent


class Anywhere:
    """A place of work that needs no entering."""

    entered = True

    def inside(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture(scope="module")
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="capability: CuPy's names and signatures (cupy is not installed)")


@pytest.fixture(scope="module")
def with_numpy() -> KernelRegistry:
    return registry(np, Anywhere(), tf32=True)


CLAIMED = {(entry.domain, entry.op_type) for entry, *_ in claimable()} - set(ALONE)
"""Operators with portable functions."""
CASES = [
    c
    for c in COVERED
    if (c.model.graph.node[0].domain, c.model.graph.node[0].op_type) in CLAIMED
    and all(v.type.HasField("tensor_type") for v in c.model.graph.input)
]


def as_view(case: Any) -> Any:
    """The case's node as providers see nodes, as far as a kernel's making asks."""
    node, model = case.model.graph.node[0], case.model
    version = next(o.version for o in model.opset_import if ("" if o.domain == "ai.onnx" else o.domain) == node.domain)
    schema = defs.get_schema(node.op_type, version, node.domain)
    types = {
        v.name: f"tensor({defs_name(v.type.tensor_type.elem_type)})"
        for v in model.graph.input
        if v.type.HasField("tensor_type")
    }
    bound: dict[str, str] = {}
    for formal, name in zip(schema.inputs, node.input, strict=False):
        if name in types:
            bound.setdefault(formal.type_str, types[name])
    return SimpleNamespace(
        op_type=node.op_type, domain=node.domain, since_version=schema.since_version, constraint_types=bound,
        attributes={a.name: attribute(a) for a in node.attribute}, outputs=list(node.output),
    )  # fmt: skip


def defs_name(code: int) -> str:
    from onnxplug.contract.types import ELEMENT_NAMES

    return ELEMENT_NAMES[code]


def operands(case: Any, data: Any) -> list[Any]:
    feeds = dict(zip([i.name for i in case.model.graph.input], map(value, data), strict=False))
    return [feeds.get(name) if name else None for name in case.model.graph.node[0].input]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_with_numpy_as_the_namespace(case: Any, with_numpy: KernelRegistry) -> None:
    node = as_view(case)
    found = with_numpy.kernel_for(node)
    if not hasattr(found, "create"):
        return  # element types CuPy lacks
    kernel: Any = found.create(node)
    if isinstance(kernel, CountedKernel):
        kernel = kernel._otherwise
    for given, wanted in case.data_sets:
        results = kernel(*operands(case, given))
        results = results if isinstance(results, tuple) else (results,)
        outputs = [y for name, y in zip(node.outputs, results, strict=False) if name]
        Runner.assert_similar_outputs([value(o) for o in wanted], outputs, case.rtol, case.atol)


def test_no_kernel_reads_device_memory_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CuPy's, these arrays refuse to become NumPy's behind the caller's back."""
    strict = pytest.importorskip("array_api_strict")
    array = type(strict.asarray(1.0))

    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise TypeError("implicit conversion to a NumPy array is not allowed")

    monkeypatch.setattr(array, "__array__", refuse)
    monkeypatch.setattr(array, "__buffer__", refuse, raising=False)
    known = {np.dtype(t) for t in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")}
    ran = 0
    for case in CASES:
        entry, node = entry_for(case.model), case.model.graph.node[0]
        attributes = {a.name: attribute(a) for a in node.attribute}
        if "n_outputs" in inspect.signature(entry.function).parameters:
            attributes["n_outputs"] = len(node.output)
        for data, outputs in case.data_sets:
            given = operands(case, data)
            values = [*given, *map(value, outputs)]
            if not all(v is None or (isinstance(v, np.ndarray) and v.dtype in known) for v in values):
                continue
            placed = [
                x if x is None or index in entry.host_inputs else strict.asarray(x) for index, x in enumerate(given)
            ]
            with np.errstate(all="ignore"):
                entry.function(strict, *placed, **attributes)
            ran += 1
    assert ran > 900


def looked_up(cupy: Any, name: str) -> Any:
    """What the kernels get for ``xp.name``, None where there is nothing."""
    found: Any = Namespace(cupy)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def calls_of_namespace() -> list[tuple[str, ast.Call | None, str]]:
    """(name, call or None for a bare mention, where) of every use of ``xp`` in the kernels' sources."""
    found: list[tuple[str, ast.Call | None, str]] = []
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        inner = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        found += [
            (f"linalg.{inner[id(node)].attr}", called.get(id(inner[id(node)])), f"{path.name}:{node.lineno}")
            if node.attr == "linalg"
            else (node.attr, called.get(id(node)), f"{path.name}:{node.lineno}")
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "xp"
        ]
    return found


def test_cupy_has_every_function_the_kernels_call(cupy: Any) -> None:
    missing = sorted({f"{name} ({where})" for name, _, where in calls_of_namespace() if looked_up(cupy, name) is None})
    assert missing == []
    assert all(hasattr(cupy, name) for name in elementwise.UFUNCS.values())


def test_cupys_functions_take_what_the_kernels_give(cupy: Any) -> None:
    """Calls whose arguments are all written out are bound to the signature of CuPy's function."""
    wrong = []
    for name, call, where in calls_of_namespace():
        if (
            call is None
            or any(isinstance(a, ast.Starred) for a in call.args)
            or any(k.arg is None for k in call.keywords)
        ):
            continue
        try:
            signature = inspect.signature(looked_up(cupy, name))
        except (TypeError, ValueError):
            continue  # a ufunc
        try:
            signature.bind(*call.args, **{str(k.arg): k.value for k in call.keywords})
        except TypeError as error:
            wrong.append(f"{where}: {name}: {error}")
    assert wrong == []


def test_every_type_that_is_claimed_is_one_cupy_has(cupy: Any) -> None:
    from cupy._core._scalar import get_typename

    from onnxplug.contract.types import numpy_dtype
    from onnxplug_ep_cuda.refusals import ELEMENTS

    for element in ELEMENTS:
        assert get_typename(numpy_dtype(element))
    for _, _, _, types in claimable():
        assert all(strings <= {f"tensor({element})" for element in ELEMENTS} for strings in types.values())


def test_functions_with_outputs_have_loops_for_bfloat16_where_they_are_arithmetic(cupy: Any) -> None:
    for op in ("Add", "Sub", "Mul", "Exp", "Tanh", "Sqrt", "Less", "Equal", "Neg"):
        loops = getattr(cupy, elementwise.UFUNCS[op]).types
        assert any(loop.startswith("E") for loop in loops), (op, loops)


def test_shapes_are_host_results(with_numpy: KernelRegistry) -> None:
    hosted = {d.op_type: d for d in with_numpy if d.host_outputs}
    assert set(hosted) == HOST_RESULTS
    by_name = {(d.op_type, d.since): d for d in with_numpy if d.domain == ""}
    assert by_name["Reshape", 5].host_inputs == frozenset({1}) and by_name["Reshape", 5].alias == {0: 0}


def specs(*arrays: np.ndarray) -> list[TensorSpec]:
    return [TensorSpec(a.dtype, a.shape) for a in arrays]


def test_moving_forms_fill_their_outputs() -> None:
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
    y = np.empty((4, 2, 3))
    move.transpose(specs(x), specs(y), perm=[2, 0, 1]).call(x, y)
    np.testing.assert_array_equal(y, x.transpose(2, 0, 1))
    y = np.empty((2, 8, 4))
    joined = move.concat(specs(x, other), specs(y), axis=-2)
    assert joined is not None
    joined.call(x, other, y)
    np.testing.assert_array_equal(y, np.concatenate([x, other], 1))
    halves = [np.empty((2, 3, 1)), np.empty((2, 3, 3))]
    divided = move.split(specs(x), specs(*halves), axis=2)
    assert divided is not None
    divided.call(x, *halves)
    np.testing.assert_array_equal(np.concatenate(halves, 2), x)


@pytest.mark.parametrize(("address", "whole"), [(256, True), (272, True), (260, False), (264, False)])
def test_results_begin_where_a_device_may_read_them_by_vectors(address: int, whole: bool) -> None:
    """A slice in one piece begins within the tensor that it is of; words of packed weights, and cuDNN, cannot be read there."""
    copied = object()
    flags = SimpleNamespace(c_contiguous=True)
    shown = SimpleNamespace(data=SimpleNamespace(ptr=address), flags=flags, copy=lambda: copied)
    kernel = ArrayKernel(np, Anywhere(), lambda: (shown, None), None, {})
    assert kernel() == (shown if whole else copied, None)


def test_kernels_with_a_writing_form_say_so(with_numpy: KernelRegistry) -> None:
    node = SimpleNamespace(
        op_type="MatMul", domain="", since_version=13, constraint_types={}, attributes={}, outputs=["y"]
    )
    kernel = with_numpy.kernel_for(node).create(node)  # type: ignore[union-attr, arg-type]
    assert isinstance(kernel, Kernel)
    f32 = np.dtype(np.float32)
    bound = kernel.bind([TensorSpec(f32, (8, 4)), TensorSpec(f32, (4, 2))], [TensorSpec(f32, (8, 2))])
    assert bound is not None and bound.workspace == 0
    assert kernel.bind([TensorSpec(f32, (0, 4)), TensorSpec(f32, (4, 2))], [TensorSpec(f32, (0, 2))]) is None


MISFITS: dict[str, tuple[dict[str, Any], list[tuple[int, ...] | None]]] = {
    "BiasGelu": ({}, [(2, 3, 8), (7,)]),
    "MatMulNBits": ({"K": 64, "N": 8, "block_size": 32, "bits": 4}, [(3, 64), (8, 2, 16), (15,)]),
    "SkipLayerNormalization": ({}, [(2, 3, 8), (2, 3, 8), (7,)]),
    "RotaryEmbedding": ({}, [(2, 3, 4, 8), (2,), (9, 4), (9, 3)]),
}


@pytest.mark.parametrize("op_type", MISFITS)
def test_operands_that_do_not_fit_are_refused_before_a_kernel_reads_beside_them(
    op_type: str, with_numpy: KernelRegistry
) -> None:
    attributes, shapes = MISFITS[op_type]
    node: Any = SimpleNamespace(
        op_type=op_type,
        domain="com.microsoft",
        since_version=1,
        constraint_types={},
        attributes=attributes,
        outputs=["y"],
    )
    found = with_numpy.kernel_for(node)
    assert isinstance(found, KernelDef)
    kernel: Any = found.create(node)
    specs = [None if s is None else TensorSpec(np.dtype(np.float32), s) for s in shapes]
    assert kernel.bind(specs, [specs[0]]) is None
    with pytest.raises(Refusal, match=f"of {op_type} has shape"):
        kernel(*(None if s is None else np.zeros(s, np.float32) for s in shapes))


def test_a_shape_that_a_run_decides_is_looked_at_by_the_function() -> None:
    x, y = (TensorSpec(np.dtype(np.float32), s) for s in ((2, 3), (4, 2, 3)))
    shape = TensorSpec(np.dtype(np.int64), (3,))
    assert move.expand([x, shape], [y]) is None
    assert move.expand([x, TensorSpec(shape.dtype, shape.shape, np.array([4, 2, 3]))], [y]) is not None
