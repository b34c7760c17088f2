"""Chains of element-wise operators, and the means to run their programs on an OpenCL device of the processor."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import onnx.parser
import pytest

from onnxplug.contract import GraphView, TensorSpec
from onnxplug_ep_cuda.codegen.chains import chains
from onnxplug_ep_cuda.codegen.lower import Program, lower

MODELS = {
    "gelu": "(float[B, S, 8] x, float[8] b) => (float[B, S, 8] z) <float half = {0.5}, float one = {1}, float c = {0.70710678}>"
    "{ s = Add(x, b) t = Mul(s, c) e = Erf(t) o = Add(e, one) h = Mul(s, half) z = Mul(h, o) }",
    "attention_mask": "(float[B, 4, S, 40] x, bool[B, 1, 1, 40] keep) => (float[B, 4, S, 40] z)"
    "<float low = {-10000}, float[1] scale = {0.125}> { a = Mul(x, scale) z = Where(keep, a, low) }",
    "integers": "(int64[B, S] i, int64[S] j) => (int64[B, S] m, bool[B, S] g) <int64 three = {3}>"
    "{ a = Sub(i, j) b = Mul(a, three) m = Max(b, i, j) g = Greater(m, b) }",
    "two_shapes": "(float[B, 1] p, float[S] q, float[B, S] r) => (float[B, S] z, float[B, 1] u)"
    "{ u = Exp(p) v = Tanh(q) w = Mul(u, v) y = Sub(w, r) z = Sigmoid(y) }",
    "weights": "(float[B, 3] x) => (float[B, 3] z) <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}>"
    "{ a = Mul(x, w) b = Add(a, v) z = Relu(b) }",
    "half": "(float16[B, S] x, float16[S] y) => (float16[B, S] z) { a = Mul(x, y) b = Sigmoid(a) c = Mul(a, b) z = Neg(c) }",
    "bfloat": "(bfloat16[B, S] x, bfloat16[S] y) => (bfloat16[B, S] z) { a = Mul(x, y) z = Sub(a, y) }",
    "double": "(double[B, S] x) => (double[B, S] z) { a = Softplus(x) b = Tanh(a) z = Mul(x, b) }",
    "logic": "(float[B, S] x) => (bool[B, S] z) <float zero = {0}, float one = {1}>"
    "{ a = Greater(x, zero) b = Less(x, one) c = And(a, b) z = Not(c) }",
    "convert": "(uint8[B, S] x, float[1] s) => (float[B, S] z, int32[B, S] k) { f = Cast<to = 1>(x) z = Mul(f, s) k = Cast<to = 6>(z) }",
    "powers": "(float[B, S] x) => (float[B, S] z) <float two = {2}, float e = {0.001}>"
    "{ a = Pow(x, two) b = Add(a, e) c = Sqrt(b) d = Reciprocal(c) z = Mul(x, d) }",
    "quantized sum": "(uint8[B, S] x, int8[B, S] v) => (uint8[B, S] z, float[B, S] r)"
    "<float p = {0.05}, float q = {0.03}, float s = {0.07},"
    "uint8 o = {120}, int8 i = {-3}, uint8 u = {3}>{ a = DequantizeLinear(x, p, o) b = DequantizeLinear(v, q, i) c = Add(a, b)"
    "r = Relu(c) z = QuantizeLinear(r, s, u) }",
    "numbers of 16 bits": "(int16[B, S] x) => (int8[B, S] z) <float[1] p = {0.01}, int16[1] o = {50}, float[1] s = {0.02}>"
    "{ a = DequantizeLinear(x, p, o) b = Tanh(a) c = QuantizeLinear <output_dtype = 3> (b, s) d = DequantizeLinear(c, s) e = Neg(d)"
    "z = QuantizeLinear <output_dtype = 3> (e, s) }",
    "difference": "(float[B, S] x, float[B, S] y) => (float[B, S] z)"
    "{ a = Mul(x, y) b = Mul(x, y) c = Sub(a, b) z = Sqrt(c) }",
    "scalars": "(float x, float y) => (float z) { a = Add(x, y) z = Abs(a) }",
}
SIZES = {"B": 3, "S": 37}


@functools.cache
def proto(name: str) -> onnx.ModelProto:
    """A model of the table."""
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {MODELS[name]}')
    onnx.checker.check_model(made)
    return made


def feeds(name: str, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of a model."""
    rng, made = np.random.default_rng(seed), {}
    for value in proto(name).graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] if d.dim_value or d.dim_param else 1 for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape) * 2 if dtype.kind in "fV" else rng.integers(0, 100, shape)
        made[value.name] = (drawn > 50 if dtype.kind == "b" else np.asarray(drawn)).astype(dtype)
    return made


def programs(name: str, inputs: Mapping[str, np.ndarray]) -> tuple[Program, dict[str, np.ndarray], GraphView]:
    """The program of a model that is one chain, the constants it reads, and its graph."""
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    graph = models.graph_of(proto(name))
    (nodes,) = chains(graph, lambda node: False)
    assert len(nodes) == len(graph.nodes)
    constants = {v.name: v.constant for n in nodes for v in n.inputs if v is not None and v.constant is not None}
    specs = {n: TensorSpec(a.dtype, a.shape) for n, a in inputs.items()}
    return lower(nodes, specs, constants, [o.name for o in graph.outputs]), constants, graph


def on_opencl(program: Program, tensors: Mapping[str, np.ndarray], graph: GraphView) -> list[np.ndarray]:
    """The program's text in its other dialect, run by an OpenCL device of the processor. Skips the test where there is none."""
    cl = pytest.importorskip("pyopencl", reason="capability: OpenCL (pyopencl is not installed)")
    from onnxplug_kernel_text.opencl import PRELUDE

    platforms = [p for p in cl.get_platforms() if "Portable" in p.name]
    if not platforms:
        pytest.skip("capability: PoCL, the OpenCL platform that runs on the processor")
    context = cl.Context(platforms[0].get_devices()[:1])
    queue = cl.CommandQueue(context)
    built = cl.Program(context, PRELUDE + program.text).build(cache_dir=False)
    results = {o.name: np.empty(program.shapes[o.name], o.dtype) for o in graph.outputs}
    # A tensor is a buffer and an offset in elements; what stays inside shares one buffer.
    where = {
        name: (cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=_bytes(a)), 0) for name, a in tensors.items()
    }
    where |= {name: (cl.Buffer(context, 0, max(a.nbytes, 1)), 0) for name, a in results.items()}
    scratch = cl.Buffer(context, 0, max(program.workspace, 1))
    for name, offset in program.places.items():
        dtype = graph.value(name).dtype
        assert dtype is not None
        where[name] = (scratch, offset // dtype.itemsize)
    for call in program.calls:
        arguments = [part for name in call.tensors for part in (where[name][0], np.int64(where[name][1]))]
        items = (call.grid[0] * call.block, call.grid[1])
        cl.Kernel(built, call.name)(queue, items, (call.block, 1), *arguments, *call.scalars)
    for name, array in results.items():
        flat = np.empty(array.nbytes, np.uint8)
        cl.enqueue_copy(queue, flat, where[name][0])
        results[name] = flat.view(array.dtype).reshape(array.shape)
    return list(results.values())


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8)
