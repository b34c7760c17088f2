"""Nodes that ONNX's specification forbids: refused where onnxruntime refuses them, when the session is made or when it runs, by the same
class, whether shapes are known beforehand or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser

import onnxplug
from onnxplug.contract.errors import Fail, InvalidArgument, InvalidGraph

CPU = ["CPUExecutionProvider"]
F = np.float32
IMAGE, FILTER, TURNED = np.ones((1, 3, 8, 8), F), np.ones((4, 3, 3, 3), F), np.ones((3, 4, 3, 3), F)
NOTHING = np.ones((1, 3, 0, 8), F)
TABLE, SIGNAL, WINDOW = np.ones((3, 4), F), np.ones((1, 16, 1), F), np.ones(8, F)
BOXES, SCORES, UNPOOLED = np.ones((1, 4, 4), F), np.ones((1, 1, 4), F), np.ones((1, 1, 2, 2), F)
RECURRENT = [np.ones((3, 1, 4), F), np.ones((1, 8, 4), F), np.ones((1, 8, 2), F)]


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


AT_LOAD: list[tuple[str, list[Any]]] = [
    *((f'{op} <kernel_shape=[2,2], auto_pad="nope">', [IMAGE]) for op in ("MaxPool", "AveragePool", "LpPool")),
    ('Conv <auto_pad="nope">', [IMAGE, FILTER]),
    ('ConvTranspose <auto_pad="nope">', [IMAGE, TURNED]),
    ("MaxPool <kernel_shape=[2,2], storage_order=2>", [IMAGE]),
    ("LRN <size=0>", [IMAGE]),
    ("LRN <size=-1>", [IMAGE]),
    ("NonMaxSuppression <center_point_box=2>", [BOXES, SCORES, whole(2)]),
    ('Pad <mode="nope">', [TABLE, whole(1, 1, 1, 1)]),
    ('Resize <mode="nope">', [IMAGE, None, np.array([1, 1, 2, 2], F)]),
    ('Resize <coordinate_transformation_mode="nope">', [IMAGE, None, np.array([1, 1, 2, 2], F)]),
    ('Resize <nearest_mode="nope">', [IMAGE, None, np.array([1, 1, 2, 2], F)]),
    ('RoiAlign <mode="nope">', [IMAGE, np.ones((1, 4), F), whole(0)]),
    ('GridSample <mode="nope">', [IMAGE, np.ones((1, 2, 2, 2), F)]),
    ('GridSample <padding_mode="nope">', [IMAGE, np.ones((1, 2, 2, 2), F)]),
    ("LSTM <hidden_size=0>", RECURRENT),
    ("LSTM <hidden_size=2, layout=2>", RECURRENT),
    ("LSTM <hidden_size=2, clip=-1.0>", RECURRENT),
    ('LSTM <hidden_size=2, activations=["Nope", "Tanh", "Tanh"]>', RECURRENT),
    ("LayerNormalization <axis=5>", [TABLE, np.ones(4, F)]),
    ("CumSum <reverse=99>", [TABLE, np.array(0)]),
    ("Mod <fmod=2>", [TABLE, TABLE]),
    ("Transpose <perm=[1,1]>", [TABLE]),
    ("Transpose <perm=[0,2]>", [TABLE]),
]
AT_RUN: list[tuple[str, list[Any]]] = [
    *((window, [np.array(-3)]) for window in ("HannWindow", "HammingWindow", "BlackmanWindow")),
    ("STFT", [np.ones((1, 16, 3), F), np.array(4), WINDOW]),
    ("STFT", [SIGNAL, np.array(-1), WINDOW]),
    ("STFT", [SIGNAL, np.array(4), np.ones(32, F)]),
    ("STFT", [SIGNAL, np.array(4), WINDOW, np.array(6)]),
    ("STFT", [SIGNAL, np.array(4), None, np.array(20)]),
    ("DFT", [np.ones((1, 8, 1), F), None, np.array(5)]),
    ("DFT", [np.ones((1, 8, 1), F), np.array(0)]),
    ("DFT", [np.ones((1, 8, 3), F)]),
    ("DFT <inverse=1, onesided=1>", [np.ones((1, 8, 1), F)]),
    *(
        ("MelWeightMatrix", [np.array(n) for n in sizes] + [np.array(edge, F) for edge in edges])
        for sizes, edges in (
            ((4, 8, 16000), (9000, 8000)),
            ((4, 16, 8192), (0, 9000)),
            ((4, 16, 0), (0, 100)),
            ((4, 16, -5), (0, 100)),
            ((4, -4, 8192), (0, 100)),
            ((4, 16, 8192), (-1, 100)),
            ((4, 16, 8192), (np.nan, 100)),
            ((4, 16, 8192), (0, np.inf)),
        )
    ),
    ("MaxUnpool <kernel_shape=[2,2], strides=[2,2]>", [UNPOOLED, whole(0, 3, 8, 99).reshape(1, 1, 2, 2)]),
    ("MaxUnpool <kernel_shape=[2,2], strides=[2,2]>", [UNPOOLED, whole(0, 3).reshape(1, 1, 1, 2)]),
    (
        "MaxUnpool <kernel_shape=[2,2], strides=[2,2]>",
        [UNPOOLED, whole(0, 3, 8, 9).reshape(1, 1, 2, 2), whole(1, 1, 3, 3)],
    ),
    ("NonMaxSuppression", [BOXES, SCORES, whole(2), np.array([2], F)]),
    ("NonMaxSuppression", [BOXES, SCORES, whole(2), np.array([-1], F)]),
    ("ConvTranspose <output_padding=[2,2]>", [IMAGE, TURNED]),
    ("ConvTranspose <output_padding=[-1,-1]>", [IMAGE, TURNED]),
    ("ConvTranspose <pads=[9,9,9,9]>", [IMAGE, TURNED]),
    ("ConvTranspose <pads=[1,1,1,1]>", [NOTHING, np.ones((3, 4, 2, 2), F)]),
    ('ConvTranspose <auto_pad="SAME_UPPER">', [NOTHING, TURNED]),
    ("ConvTranspose <strides=[3,3], output_shape=[27,27]>", [IMAGE, TURNED]),
    *((op, [NOTHING]) for op in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")),
    ("TopK", [TABLE, whole(9)]),
    ("TopK", [TABLE, whole(-1)]),
    ("Unsqueeze", [TABLE, whole(0, 0)]),
    ("Unsqueeze", [TABLE, whole(9)]),
    ("Resize", [IMAGE, None, np.array([1, 1, -2, 2], F)]),
    ("OneHot", [whole(1), whole(3), np.array([0, 1, 2], F)]),
    ("OneHot", [whole(), whole(0), np.array([0, 1], F)]),
    ("AffineGrid", [np.ones((3, 2, 3), F), whole(2, 1, 4, 4)]),
    ("Reshape", [TABLE, whole(3, 4).reshape(1, 2)]),
    *((f"{op} <axis={axis}>", [TABLE]) for op in ("Unique", "LpNormalization") for axis in (2, -3)),
    ("Gather <axis=2>", [TABLE, whole(0)]),
    ("Gather", [np.array(1, F), whole(0)]),
    ("Compress <axis=2>", [TABLE, np.array([True])]),
    ("OneHot <axis=2>", [whole(1), whole(3), np.array([0, 1], F)]),
    ("ScatterElements <axis=2>", [TABLE, whole(0).reshape(1, 1), np.ones((1, 1), F)]),
    ("CumSum", [np.array(1, F), np.array(0)]),
    ("Gemm", [np.array(1, F), np.array(1, F)]),
    ("Split", [TABLE, whole(4)]),
    ("Resize", [IMAGE, None, np.ones(4, F), whole(1, 3, 8, 8)]),
]
"""Nodes without their outputs, and what they are given (None: nothing)."""


OLDER: list[tuple[int, str, list[Any]]] = [
    *((9, f"{op} <axis={axis}>", [TABLE]) for op in ("Hardmax", "LogSoftmax", "Softmax") for axis in (2, -3)),
    (9, "Softmax", [np.ones(3, F)]),
    *((7, op, [TABLE, np.ones(other, F)]) for op in ("Max", "Mean", "Min", "Sum") for other in ((4,), (3, 0), (5, 4))),
    *((11, f"{op} <axes=[5]>", [TABLE]) for op in ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum")),
    (11, "ReduceMax <axes=[4294967296]>", [TABLE]),
    *((11, f"Unsqueeze <axes={axes}>", [TABLE]) for axes in ([0, 4294967296], [3], [0, 1, 1], [4, 4])),
    *((11, f"Squeeze <axes={axes}>", [np.ones((1, 1), F)]) for axes in ([2], [0, 2], [-3])),
    (13, "Transpose <perm=[4294967297, 0]>", [TABLE]),
    (18, "Split <num_outputs=1>", [TABLE, whole(3)]),
    (18, "OneHot", [whole(1, 2), whole(0), np.array([0, 1], F)]),
    (
        23,
        "RotaryEmbedding <num_heads=-1>",
        [np.ones((1, 2, 4, 6), F), TABLE[:, :3], TABLE[:, :3], whole(0, 1, 2, 0).reshape(1, 4)],
    ),
    (23, "RotaryEmbedding", [np.ones((1, 2, 4, 6), F), TABLE[:, :3], TABLE[:, :3], whole(0, 1).reshape(1, 2)]),
]
"""Opset, node and what it is given: by what onnx infers of them their shapes are those of other nodes."""


def model(node: str, inputs: list[Any], shapes: bool, opset: int = 21) -> bytes:
    names = [f"x{i}" if x is not None else " " for i, x in enumerate(inputs)]
    outputs = ["y", "z"] if node.startswith("TopK") else ["y"]
    graph = parser.parse_graph(
        f"g () => ({', '.join(outputs)}) {{ {', '.join(outputs)} = {node} ({', '.join(names)}) }}"
    )
    for name, x in zip(names, inputs, strict=True):
        if x is not None:
            dims = x.shape if shapes else [None] * x.ndim
            graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), dims))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(made.SerializeToString())


def outcome(runtime: Any, source: bytes, inputs: list[Any]) -> tuple[str, str]:
    """Where it ends, and by which class."""
    try:
        session = runtime.InferenceSession(source, providers=CPU)
    except Exception as error:
        return "load", type(error).__name__
    try:
        session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})
    except Exception as error:
        return "run", type(error).__name__
    return "result", ""


@pytest.mark.parametrize("shapes", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("node", "inputs", "when"),
    [(*case, "load") for case in AT_LOAD] + [(*case, "run") for case in AT_RUN],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_forbidden_nodes(node: str, inputs: list[Any], when: str, shapes: bool) -> None:
    source = model(node, inputs, shapes)
    ours = outcome(onnxplug, source, inputs)
    theirs = pytest.importorskip("onnxruntime")
    theirs.set_default_logger_severity(4)
    assert ours == outcome(theirs, source, inputs)
    assert ours[0] in (when, "load")


@pytest.mark.parametrize("codegen", ["1", "0"])
@pytest.mark.parametrize("shapes", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(("opset", "node", "inputs"), OLDER, ids=lambda x: x if isinstance(x, str) else "")
def test_forbidden_places(opset: int, node: str, inputs: list[Any], shapes: bool, codegen: str) -> None:
    source, options = model(node, inputs, shapes, opset), onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    with pytest.raises((Fail, InvalidArgument), match=node.split()[0]):
        session = onnxplug.InferenceSession(source, options, providers=CPU)
        session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None})


@pytest.mark.parametrize("codegen", ["1", "0"])
@pytest.mark.parametrize("shapes", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("op", ["ReduceL2", "ReduceMax", "ReduceMean"])
def test_axes_of_a_scalar(op: str, shapes: bool, codegen: str) -> None:
    """A scalar has none, and onnxruntime looks at none of them."""
    x, axes, options = np.array(-2, F), whole(0, 1), onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    source, feeds = model(op, [x, axes], shapes), {"x0": x, "x1": axes}
    (ours,) = onnxplug.InferenceSession(source, options, providers=CPU).run(None, feeds)
    theirs = pytest.importorskip("onnxruntime").InferenceSession(source, providers=CPU)
    np.testing.assert_array_equal(ours, theirs.run(None, feeds)[0])


@pytest.mark.parametrize("codegen", ["1", "0"])
@pytest.mark.parametrize("shapes", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        *((f"{op} <keepdims=0>", [TABLE, whole(1, -1)]) for op in ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceSumSquare")),
        ("Split", [TABLE, whole()]),
        ("SplitToSequence <keepdims=0>", [TABLE, whole()]),
        *(("Pad", [TABLE, np.array([*first, *last])]) for first, last in (((-4, 0), (5, 0)), ((0, 7), (0, -5)), ((-5, 1), (2, 1)))),
        ("Pad", [TABLE[:0], whole(-1, 0, 3, 0)]),
        *(
            (f'Resize <mode="{mode}", coordinate_transformation_mode="tf_crop_and_resize">', [TABLE, region, np.array([2, 1.5], F)])
            for mode in ("nearest", "linear") for region in (np.array([0.2, 0.1, 0.7, 1.2], F), np.array([0, 0, 1, 0.5], F))
        ),
    ],
)  # fmt: skip
def test_odd_operands(node: str, inputs: list[Any], shapes: bool, codegen: str) -> None:
    """As in onnxruntime an axis that is told twice counts once, no sizes mean equal ones, what is taken off beyond the last element comes
    out of what is added, and a region has no part in the size that scales give."""
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    source, feeds = model(node, inputs, shapes, 18), {f"x{i}": x for i, x in enumerate(inputs)}
    (ours,) = onnxplug.InferenceSession(source, options, providers=CPU).run(None, feeds)
    (theirs,) = pytest.importorskip("onnxruntime").InferenceSession(source, providers=CPU).run(None, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, strict=isinstance(ours, np.ndarray))


@pytest.mark.parametrize("edges", [(0, 0), (4000, 4000), (3000, 1000), (0, 4336)])
def test_triangles_without_width(edges: tuple[float, float]) -> None:
    """Edges may be one, and in any order, as long as a bin of the spectrum has them."""
    inputs = [np.array(n) for n in (3, 16, 8192)] + [np.array(edge, F) for edge in edges]
    source, feeds = model("MelWeightMatrix", inputs, True), {f"x{i}": x for i, x in enumerate(inputs)}
    theirs = pytest.importorskip("onnxruntime")
    ours, wanted = (r.InferenceSession(source, providers=CPU).run(None, feeds)[0] for r in (onnxplug, theirs))
    np.testing.assert_allclose(ours, wanted, rtol=1e-6)


@pytest.mark.parametrize("op", ["Max", "Mean", "Sum"])
def test_an_omitted_operand_of_several(op: str) -> None:
    with pytest.raises(InvalidGraph, match="input 0 is marked variadic"):
        onnxplug.InferenceSession(model(op, [None, TABLE], True), providers=CPU)


@pytest.mark.parametrize("codegen", ["1", "0"])
def test_sides_of_activations_do_not_mix(codegen: str) -> None:
    """What is above zero does not meet an infinite alpha, which makes NaN of zero."""
    x, options = np.array([-np.inf, -2, -0.0, 0, 1, np.inf], F), onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    theirs = pytest.importorskip("onnxruntime")
    for op in ("LeakyRelu", "Elu", "Celu"):
        for alpha in (np.inf, -1.0, 0.0):
            node = helper.make_node(op, ["x0"], ["y"], alpha=alpha)
            made = onnx.load_from_string(model("Relu", [x], True))
            made.graph.node[0].CopyFrom(node)
            source = made.SerializeToString()
            ours = onnxplug.InferenceSession(source, options, providers=CPU).run(None, {"x0": x})[0]
            np.testing.assert_allclose(
                ours, theirs.InferenceSession(source, providers=CPU).run(None, {"x0": x})[0], rtol=1e-6
            )


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_padding_by_both_of_two_attributes(op: str) -> None:
    """A node may have one of both; of two, kernels go by ``auto_pad``, and so do shapes."""
    node = f'{op} <kernel_shape=[2,2], auto_pad="SAME_UPPER", pads=[1,1,1,1]>'
    theirs = pytest.importorskip("onnxruntime")
    source = model(node, [IMAGE], True)
    session, other = (r.InferenceSession(source, providers=CPU) for r in (onnxplug, theirs))
    assert session.get_outputs()[0].shape == [1, 3, 8, 8]
    np.testing.assert_allclose(session.run(None, {"x0": IMAGE})[0], other.run(None, {"x0": IMAGE})[0], rtol=1e-6)


@pytest.mark.parametrize("node", ["Conv", "ConvTranspose"])
def test_filters_without_elements(node: str) -> None:
    """A division by zero ends onnxruntime's process where shapes are not known beforehand."""
    inputs = [IMAGE, np.ones((3, 3, 0, 2), F)]
    session = onnxplug.InferenceSession(model(node, inputs, False), providers=CPU)
    with pytest.raises((Fail, InvalidArgument), match=f"running {node} node"):
        session.run(None, {"x0": inputs[0], "x1": inputs[1]})


@pytest.mark.parametrize("shapes", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("size", [(3, 3), (9, 4), (10, 10)])
def test_a_transposed_convolution_of_a_size_that_is_told(size: tuple[int, int], shapes: bool) -> None:
    """onnx's inference leaves out the dimensions of a result smaller than its input."""
    source = model(f"ConvTranspose <output_shape=[{size[0]},{size[1]}]>", [IMAGE, TURNED], shapes)
    theirs = pytest.importorskip("onnxruntime")
    feeds = {"x0": IMAGE, "x1": TURNED}
    ours, wanted = (r.InferenceSession(source, providers=CPU).run(None, feeds)[0] for r in (onnxplug, theirs))
    assert ours.shape == (1, 4, *size)
    np.testing.assert_allclose(ours, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("starts", "ends", "text"),
    [
        (whole(0), whole(2, 3), "Starts and ends shape mismatch"),
        (whole(0).reshape(1, 1), whole(2).reshape(1, 1), "Starts must be a 1-D array"),
    ],
)
def test_lists_of_a_slice_that_do_not_go_together(starts: np.ndarray, ends: np.ndarray, text: str) -> None:
    session = onnxplug.InferenceSession(model("Slice", [TABLE, starts, ends], False), providers=CPU)
    with pytest.raises(Fail, match=text):
        session.run(None, {"x0": TABLE, "x1": starts, "x2": ends})
