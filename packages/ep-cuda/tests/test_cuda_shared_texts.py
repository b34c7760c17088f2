"""Kernel text that OpenCL runs, as CUDA C++: NVRTC takes it too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nvrtc_compile import ptx

from onnxplug_kernel_text import indexing, selection, suppression, topk, windows
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.displaced import displaced
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.factors import Windows
from onnxplug_kernel_text.local_product import local_product
from onnxplug_kernel_text.norm import normalisation
from onnxplug_kernel_text.recurrent import Cell, recurrent
from onnxplug_kernel_text.roi import max_roi, roi_align
from onnxplug_kernel_text.sample import grid_sample
from onnxplug_kernel_text.softmax import softmax

MATRIX = Operand("f32", (None, None, 1))
CELL = Cell(
    "LSTM",
    "f16",
    24,
    (("sigmoid", None, None), ("tanh", None, None), ("scaledtanh", 0.5, 2.0)),
    clip=3.0,
    inputs=frozenset({"bias", "lengths", "initial_h", "initial_c", "peepholes"}),
    outputs=frozenset({"y", "last_h", "last_c"}),
)
TEXTS = {
    "product": local_product(
        "k", MATRIX, Operand("f32", (0, 1, None)), [Operand("f32", (0, 0, 1))], MATRIX, "y = x + e0;"
    ),
    "halves": local_product("k", *[Operand("f16", (None, 1))] * 2, [], Operand("bf16", (None, 1)), "y = x;"),
    "convolution": local_product("k", MATRIX, Windows(Operand("f32", (None,)), 2), [], MATRIX, "y = x;"),
    "few channels": windows.convolution("k", "f16", 3, 1, True),
    "transposed": windows.transposed_convolution("k", "f32", 2, True),
    "maxima": windows.max_pool("k", "f32", 2, 1, True, True),
    "means": windows.mean_pool("k", "f64", 1, 1),
    "norms": windows.mean_pool("k", "bf16", 2, 1, 3.0),
    "gather": indexing.gather("k", "u16", "i32"),
    "gather elements": indexing.gather_elements("k", "u8", "i64", 3),
    "gather tuples": indexing.gather_nd("k", "u64", "i64", 2),
    "scatter": indexing.scatter_elements("k", "bf16", "i64", "max", 2),
    "scatter tuples": indexing.scatter_nd("k", "f32", "i32", "add", 2),
    "one hot": indexing.one_hot("k", "f32", "u32"),
    "running sum": indexing.running("k", "f16", True, True),
    "running product": indexing.running("k", "i64", False, False, True),
    "reversed": indexing.reverse_sequence("k", "u32", "i64"),
    "resampled": indexing.resampled("k", "f16", "f32", 4, True),
    "softmax": softmax("k", "LogSoftmax", "f16"),
    "softmax together": softmax("k", "Softmax", "f64", 128),
    "normalisation": normalisation("k", "f32", "f16", bias=True, centred=True, statistics=("mean", "spread"), group=64),
    "lstm": recurrent("k", CELL, 32, 128),
    "gru": recurrent("k", replace(CELL, operator="GRU", type="f32", functions=CELL.functions[:2]), 32, 128),
    "counted": selection.counted("k", "f16"),
    "listed": selection.listed("k", "b8"),
    "coordinates": selection.coordinates("k", 3),
    "taken": selection.taken("k", "u16"),
    "regions": roi_align("k", "f16", "i64", False),
    "largest of regions": roi_align("k", "f64", "i64", True),
    "largest elements": max_roi("k", "bf16"),
    "displaced": displaced("k", "f16", 3, True),
    "cache": indexing.tensor_scatter("k", "u16", True),
    "samples": grid_sample("k", "bf16", "f32", 3, "cubic", "reflection", False),
    "sorted": topk.top_of_sorted("k", "f16", True, True, True),
    "suppressed": suppression.non_max_suppression("k", False, True),
    "suppressed together": suppression.non_max_suppression("k", True, True, 256),
    "spans": elementwise("k", [Operand("f32", (None, 1))], [Operand("f32", (None, 1))], "y0 = EXP(x0);", span=64),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_compiles(name: str) -> None:
    assert b"k" in ptx(PRELUDE + TEXTS[name], "80")


def test_sums_are_rounded_one_by_one_where_the_text_says_so() -> None:
    """What is not marked ``rn`` the assembler joins to ``fma``."""
    pytest.importorskip("cupy", reason="capability: CuPy (cupy is not installed)")
    from onnxplug_ep_cuda.codegen.bound import options

    text = TEXTS["suppressed together"]
    assert b"mul.ftz.f32" not in ptx(PRELUDE + text, "80", options(text)[1:])
    assert b"mul.ftz.f32" in ptx(PRELUDE + text, "80")
