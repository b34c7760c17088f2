"""Models with regions of convolutions, and their programs run without a GPU: generated kernels by OpenCL on the processor, the convolutions
that cuDNN would compute by NumPy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from job_models import built, device

from onnxplug.contract import GraphView, TensorSpec
from onnxplug_ep_cuda.conv.columns import by_columns
from onnxplug_ep_cuda.conv.groups import conv_groups
from onnxplug_ep_cuda.conv.problem import nhwc
from onnxplug_ep_cuda.conv.program import EDGE, Kernels, Program, channels_last, program

BODIES = {
    "residual": "{ a = Conv<pads=[1,1,1,1]>(x, w1, b) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, w2, b) s = Add(c, x) z = Relu(s) }",
    "downsampling": "{ a = Conv<strides=[2,2]>(x, v1) c = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w1, b) s = Add(c, a)"
    " z = Clip(s, zero, six) }",
    "mobile": "{ a = Conv<group=6, pads=[1,1,1,1]>(x, d) h = HardSwish(a) z = Conv(h, v1, b) u = Add(a, per) }",
    "excited": "{ a = Conv(x, v1) p = GlobalAveragePool(a) c = Conv(p, v1) g = Sigmoid(c) z = Mul(a, g) }",
    "pooled": "{ a = Conv<auto_pad=\"SAME_UPPER\", strides=[2,2]>(x, w1) r = Relu(a)"
    " m = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(r)"
    " n = AveragePool<kernel_shape=[3,2], pads=[1,0,1,1], count_include_pad=1>(m) z = Conv(n, v1) }",
    "twice": "{ a = Conv(x, v1) z = Relu(a) u = Add(a, a) }",
    "line": "{ a = Conv<pads=[1,1], strides=[2]>(x, l3, b) r = Relu(a) c = Conv<pads=[2,0]>(r, l3) s = Add(c, r) u = Add(s, edge)"
    " z = HardSwish(u) }",
    "volume": "{ a = Conv<pads=[1,1,1,1,1,1]>(x, c3, b) r = Relu(a) c = Conv<auto_pad=\"SAME_UPPER\">(r, c2) z = Add(c, x) }",
    "grown": "{ a = ConvTranspose<strides=[2,2], output_padding=[1,0]>(x, w1, b) r = Relu(a)"
    " z = ConvTranspose<strides=[2,3], pads=[1,0,1,1]>(r, g2) }",
    "grown line": "{ a = ConvTranspose<strides=[2], auto_pad=\"SAME_UPPER\">(x, l3, b) z = Clip(a, zero, six) }",
    "grown volume": "{ z = ConvTranspose<strides=[2,1,2], dilations=[1,2,1]>(x, c2, b) }",
    "padded": "{ a = Conv<pads=[0,1,2,1], dilations=[2,1]>(x, w1) z = Neg(a) }",
}  # fmt: skip
OUTPUTS = {"mobile": ("z", "u"), "twice": ("z", "u")}
SHAPES = {
    "w1": (6, 6, 3, 3), "w2": (6, 6, 3, 3), "v1": (6, 6, 1, 1), "d": (6, 1, 3, 3), "b": (6,), "per": (6, 1, 1), "zero": (), "six": (),
    "l3": (6, 6, 3), "c3": (6, 6, 3, 3, 3), "c2": (6, 6, 2, 2, 2), "g2": (6, 2, 3, 3), "edge": (6, 1),
}  # fmt: skip


@functools.cache
def model(name: str, dtype: str = "float") -> onnx.ModelProto:
    """A model of the table over an image, a line or a volume of 6 channels."""
    rng = np.random.default_rng(0)
    sizes = {"line": ["L"], "volume": ["D", "H", "W"]}.get(name.split()[-1], ["H", "W"])
    made_sizes = ", ".join(f"of_{size}" for size in sizes)
    outputs = ", ".join(f"{dtype}[N, C, {made_sizes}] {o}" for o in OUTPUTS.get(name, ("z",)))
    text = f'<ir_version: 10, opset_import: ["" : 22]> g ({dtype}[N, 6, {", ".join(sizes)}] x) => ({outputs}) {BODIES[name]}'
    made = onnx.parser.parse_model(text)
    kind = onnx.helper.tensor_dtype_to_np_dtype(made.graph.input[0].type.tensor_type.elem_type)
    used = {i for node in made.graph.node for i in node.input}
    for weight, shape in SHAPES.items():
        if weight in used:
            fixed = {"zero": 0.0, "six": 6.0}.get(weight)
            values = rng.standard_normal(shape) if fixed is None else np.asarray(fixed)
            made.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(kind), weight))
    onnx.checker.check_model(made)
    return made


def graph_of(name: str, dtype: str = "float") -> GraphView:
    """The graph of a model as providers see it."""
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    found: GraphView = models.graph_of(model(name, dtype))
    return found


def lowered(
    name: str, x: np.ndarray, specs: Mapping[str, tuple[int, ...]], dtype: str = "float"
) -> tuple[Program, Any]:
    """The program of a model that is one region, for an input and the shapes of its values; and the graph."""
    graph = graph_of(name, dtype)
    (nodes,) = conv_groups(graph, lambda node: False)
    assert len(nodes) == len(graph.nodes)
    known = {n: TensorSpec(x.dtype, shape) for n, shape in specs.items()}
    return program(nodes, known, ["x"], list(OUTPUTS.get(name, ("z",)))), graph


def run(
    found: Program, graph: GraphView, x: np.ndarray, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The outputs of a program."""
    cl, context, queue = device()
    constants = {v.name: v.constant for n in graph.nodes for v in n.inputs if v is not None and v.constant is not None}
    flags = cl.mem_flags.COPY_HOST_PTR
    slab = cl.Buffer(context, 0, max(found.workspace, 1))
    where: dict[str, tuple[Any, int]] = {name: (slab, offset) for name, offset in found.places.items()}
    where[EDGE + "x"] = (cl.Buffer(context, flags, hostbuf=np.ascontiguousarray(x)), 0)
    for name, array in constants.items():
        laid = array if array.ndim == 1 else channels_last(array, x.ndim)  # a bias is as it was
        where[name] = (cl.Buffer(context, flags, hostbuf=np.frombuffer(laid.tobytes(), np.uint8)), 0)
    outputs = [name for name in shapes if name in [o.name for o in graph.outputs]]
    for name in outputs:
        where[EDGE + name] = (cl.Buffer(context, 0, int(np.prod(shapes[name])) * x.itemsize), 0)

    def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
        array = np.empty(shape, x.dtype)
        flat = array.view(np.uint8).reshape(-1)
        cl.enqueue_copy(queue, flat, where[name][0], src_offset=where[name][1])
        return array

    for step in found.steps:
        if isinstance(step, Kernels):
            for call in step.calls:
                parts = [p for t in call.tensors for p in (where[t][0], np.int64(where[t][1] // x.itemsize))]
                items = (call.grid[0] * call.block, call.grid[1])
                cl.Kernel(built(step.text), call.name)(queue, items, (call.block, 1), *parts, *call.scalars)
            continue
        conv = step.problem
        residual = None if step.residual is None else read(step.residual, nhwc(conv.y))
        bias = None if step.bias is None else constants[step.bias]
        weights = channels_last(constants[step.w], x.ndim)
        y = np.ascontiguousarray(by_columns(np, conv, read(step.x, nhwc(conv.x)), weights, bias, residual))
        cl.enqueue_copy(queue, where[step.y][0], y.view(np.uint8).reshape(-1), dst_offset=where[step.y][1])
    return {name: read(EDGE + name, shapes[name]) for name in outputs}
