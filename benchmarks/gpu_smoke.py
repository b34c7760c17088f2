"""What a first look at a GPU takes seconds for: each library and each way through the provider once, on small models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser

SEEDS = range(4)
"""Runs of each model: with recordings a plain one, a recorded one, replays."""
LARGEST_ERROR = {"float": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Of the largest result: products of at most 64 numbers, and two roundings to the type."""


class Smoke(NamedTuple):
    """A graph over x, float of any type, and the provider options it runs with. ``model``: the text behind the names of x and y."""

    shape: tuple[int, ...]
    body: str
    element: str = "float"
    options: Mapping[str, object] = {}
    domains: str = ""


_PRODUCT = "w = Constant <value = float[2, 3] {1.0, -2.0, 0.5, 3.0, 0.25, -1.0}> ()"
_FILTER = (
    "s = Constant <value = int64[4] {4, 4, 3, 3}> () n = ConstantOfShape <value = float[1] {0.0625}> (s) c = Conv <pads = [1, 1, 1, 1]> "
    "(x, n) r = Relu (c) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)"
)
_CHAIN = "a = Sigmoid (x) b = Mul (a, x) y = Softmax (b)"
_LAYER = (
    "a = Constant <value = int64[3] {1, 32, 5}> () b = Constant <value = int64[3] {1, 32, 8}> () "
    "w = ConstantOfShape <value = float[1] {0.0625}> (a) r = ConstantOfShape <value = float[1] {0.125}> (b) "
    "y = LSTM <hidden_size = 8> (x, w, r)"
)
_BOXES = (
    "b = Constant <value = float[1, 4, 4] {0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, 2.0, 1.0, 3.0, 5.0, 5.0, 6.0, 7.0}> () "
    "m = Constant <value = int64[1] {3}> () t = Constant <value = float[1] {0.5}> () "
    "r = NonMaxSuppression (b, x, m, t) y = Cast <to = 1> (r)"
)
_REGIONS = (
    "b = Constant <value = float[2, 4] {0.0, 0.0, 6.0, 4.0, 1.5, 2.0, 7.0, 7.5}> () i = Constant <value = int64[2] {0, 0}> () "
    "y = RoiAlign <output_height = 3, output_width = 2, sampling_ratio = 2> (x, b, i)"
)
SMOKES: Mapping[str, Smoke] = {
    "a generated kernel": Smoke((3, 100), "y = Softmax (x)"),
    "a chain of element-wise operators": Smoke((3, 100), "a = Sigmoid (x) b = Mul (a, x) y = Add (b, x)"),
    "a kernel of CuPy's": Smoke((3, 100), "k = Constant <value = int64 {1}> () y = CumSum (x, k)"),
    "a product by cuBLAS": Smoke((5, 2), f"{_PRODUCT} y = MatMul (x, w)"),
    "a product in float16": Smoke((64, 64), "t = Transpose (x) y = MatMul (x, t)", "float16"),
    "a product in bfloat16": Smoke((64, 64), "t = Transpose (x) y = MatMul (x, t)", "bfloat16"),
    "a reduction and a normalisation": Smoke((4, 600), "a = ReduceMean <keepdims = 1> (x) b = Sub (x, a) y = LpNormalization (b)"),
    "a convolution by cuDNN": Smoke((1, 4, 8, 8), _FILTER),
    "a convolution by cuBLAS": Smoke((1, 4, 8, 8), _FILTER, options={"enable_cudnn": 0}),
    "attention": Smoke((1, 2, 40, 64), "y = Attention (x, x, x)"),
    "attention by cuDNN": Smoke((1, 2, 40, 64), "y = Attention (x, x, x)", "float16"),
    "a recording": Smoke((3, 100), _CHAIN, options={"enable_cuda_graph": 1}),
    "places in order of size": Smoke((3, 100), "k = Constant <value = int64[1] {5}> () y, i = TopK (x, k)"),
    "updates at places": Smoke(
        (4, 100),
        "i = Constant <value = int64[2, 1] {3, 1}> () j = Constant <value = int64[2] {0, 2}> () u = Gather <axis = 0> (x, j) "
        "y = ScatterND (x, i, u)",
    ),
    "boxes that remain": Smoke((1, 1, 4), _BOXES),
    "regions of an image": Smoke((1, 2, 8, 8), _REGIONS, options={"enable_cuda_graph": 1}),
    "what the data selects": Smoke((4, 100), "r = Relu (x) n = NonZero (r) y = Cast <to = 1> (n)"),
    "a recurrent layer": Smoke((6, 2, 5), _LAYER),
    "a transform by cuFFT": Smoke((3, 60, 1), "y = DFT (x)"),
    "a recorded transform by cuFFT": Smoke((3, 60, 1), "y = DFT (x)", options={"enable_cuda_graph": 1}),
    "a recorded table of the host's": Smoke(
        (1, 2, 8, 8), 's = Constant <value = float[4] {1.0, 1.0, 2.0, 1.5}> () y = Resize <mode = "cubic"> (x, , s)',
        options={"enable_cuda_graph": 1},
    ),
    "a recorded product": Smoke((64, 64), "y = MatMul (x, x)", options={"enable_cuda_graph": 1}),
    "a recorded convolution": Smoke((1, 4, 8, 8), _FILTER, options={"enable_cuda_graph": 1}),
    "copies beside computation": Smoke((300, 1000), _CHAIN, options={"do_copy_in_default_stream": 0}),
    "the other arena": Smoke((3, 100), _CHAIN, options={"arena_extend_strategy": "kSameAsRequested"}),
}  # fmt: skip


def model(smoke: Smoke) -> onnx.ModelProto:
    """The model of a smoke test."""
    dims = ", ".join(map(str, smoke.shape))
    text = f'<ir_version: 11, opset_import: ["" : 23]> g ({smoke.element}[{dims}] x) => ({smoke.element}[] y) {{ {smoke.body} }}'
    made = onnx.parser.parse_model(text)
    inferred = onnx.shape_inference.infer_shapes(made)
    made.graph.output[0].CopyFrom(inferred.graph.output[0])
    return made


def feeds(smoke: Smoke, seed: int) -> dict[str, np.ndarray]:
    """Seeded inputs."""
    from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

    code = onnx.TensorProto.DataType.Value(smoke.element.upper())
    dtype = tensor_dtype_to_np_dtype(code)
    assert np_dtype_to_tensor_dtype(dtype) == code
    return {"x": np.random.default_rng(seed).standard_normal(smoke.shape).astype(dtype)}


class _Listing(logging.Handler):
    """Puts what is logged in a list."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.INFO)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


@contextmanager
def said() -> Iterator[list[str]]:
    """What the provider logs meanwhile: that cuDNN has no plan is otherwise only seen by how long things take."""
    logger, texts = logging.getLogger("onnxplug.cuda"), list[str]()
    handler, level = _Listing(texts), logger.level
    loggers = (logger, logging.getLogger("onnxplug"))
    try:
        logger.setLevel(logging.INFO)
        for one in loggers:
            one.addHandler(handler)
        yield texts
    finally:
        logger.setLevel(level)
        for one in loggers:
            one.removeHandler(handler)


def measure(name: str, session: Callable[..., Any], error: Callable[..., float]) -> dict[str, Any]:
    """The largest error of some runs against the CPU provider. ValueError where it is too large, another provider ran a node, or not cuDNN
    what is named after it."""
    from onnxplug_ep_cuda.device import missing_cudnn

    smoke = SMOKES[name]
    data = model(smoke).SerializeToString()
    with said() as texts:
        made = session(data, "CUDAExecutionProvider", use_tf32=0, **smoke.options)
        results = [made.run(None, feeds(smoke, seed)) for seed in SEEDS]
    elsewhere = sorted(node for node, owner in made.placement().items() if owner != "CUDAExecutionProvider")
    if elsewhere:
        raise ValueError(f"not on the GPU: {', '.join(elsewhere)}")
    without = [text for text in [missing_cudnn() or "", *texts] if "cuDNN" in text]
    if "by cuDNN" in name and without:
        raise ValueError("; ".join(without))
    reference = session(data, "CPUExecutionProvider")
    found = max(error(r, reference.run(None, feeds(smoke, seed))) for r, seed in zip(results, SEEDS, strict=True))
    if not found <= LARGEST_ERROR[smoke.element]:
        raise ValueError(f"an error of {found:.3g} of the largest result")
    return {"error_of_largest": found, "said": sorted(set(texts))}
