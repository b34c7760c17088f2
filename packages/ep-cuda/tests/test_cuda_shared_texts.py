"""Kernel text that OpenCL runs, as CUDA C++: NVRTC takes it too."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from nvrtc_compile import ARCHITECTURES, assembled, ptx

import onnxplug_kernel_text
from onnxplug_kernel_text import (
    attention,
    attention_rows,
    cache,
    causal,
    embed,
    experts,
    gated,
    group_norm,
    indexing,
    integer_product,
    linear_attention,
    max_rows,
    nbits,
    norm,
    packed_experts,
    packed_product,
    planes,
    pool,
    product,
    quantize,
    reduce,
    selection,
    strips,
    suppression,
    topk,
    windows,
)
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.displaced import displaced
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.factors import Windows
from onnxplug_kernel_text.fold import folded, folded_rows
from onnxplug_kernel_text.local_product import local_product
from onnxplug_kernel_text.padding import padding
from onnxplug_kernel_text.recurrent import Cell, recurrent
from onnxplug_kernel_text.roi import max_roi, roi_align
from onnxplug_kernel_text.rotary import rotary
from onnxplug_kernel_text.sample import grid_sample
from onnxplug_kernel_text.skip import skip_normalisation
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
QUERIES = attention.Form("f16", 48, 40, "b8", lengths=True, window=True, cap=True)
STATE = linear_attention.Form("bf16", "f32", past=True, decay=True, by_key=True, beta=True)
IMAGES = group_norm.Form("f16", "f32", last=True, skip=True, bias=True, total=True, activated=True)
PACKED = nbits.Form("f16", "f16", "u8", 2, bias=True)
EXPERTS = experts.Layer("f32", "u8", "f16", gathered=True, bits=4, scale="f16", zeros=True, blocked=True)
BYTES = integer_product.Form("u8", "i8", "u8", "quantized", left_zero=True, right_zero=True, bias="i32", relu=True)
TEXTS: dict[str, partial[str]] = {
    "product": partial(
        local_product, "k", MATRIX, Operand("f32", (0, 1, None)), [Operand("f32", (0, 0, 1))], MATRIX, "y = x + e0;"
    ),
    "halves": partial(local_product, "k", *[Operand("f16", (None, 1))] * 2, [], Operand("bf16", (None, 1)), "y = x;"),
    "convolution": partial(local_product, "k", MATRIX, Windows(Operand("f32", (None,)), 2), [], MATRIX, "y = x;"),
    "few channels": partial(windows.convolution, "k", "f16", 3, 1, True),
    "transposed": partial(windows.transposed_convolution, "k", "f32", 2, True),
    "maxima": partial(windows.max_pool, "k", "f32", 2, 1, True, True),
    "means": partial(windows.mean_pool, "k", "f64", 1, 1),
    "norms": partial(windows.mean_pool, "k", "bf16", 2, 1, 3.0),
    "means of channels last": partial(pool.pooling, "k", "f16", mean=True, include=True),
    "gather": partial(indexing.gather, "k", "u16", "i32"),
    "bounds": partial(indexing.bounds, "k", "i32"),
    "gather elements": partial(indexing.gather_elements, "k", "u8", "i64", 3),
    "gather tuples": partial(indexing.gather_nd, "k", "u64", "i64", 2),
    "scatter": partial(indexing.scatter_elements, "k", "bf16", "i64", "max", 2),
    "scatter tuples": partial(indexing.scatter_nd, "k", "f32", "i32", "add", 2),
    "unpooled": partial(indexing.max_unpool, "k", "f16", 3),
    "one hot": partial(indexing.one_hot, "k", "f32", "u32"),
    "running sum": partial(indexing.running, "k", "f16", True, True),
    "running product": partial(indexing.running, "k", "i64", False, False, True),
    "reversed": partial(indexing.reverse_sequence, "k", "u32", "i64"),
    "resampled": partial(indexing.resampled, "k", "f16", "f32", 4, True),
    "resampled lines": partial(indexing.resampled, "k", "f16", "f32", 4, True, lines=True),
    "folded": partial(folded, "k", "f16", 3),
    "folded rows": partial(folded_rows, "k", "f32", 2, bias=True),
    "softmax": partial(softmax, "k", "LogSoftmax", "f16"),
    "softmax together": partial(softmax, "k", "Softmax", "f64", 128),
    "normalisation": partial(
        norm.normalisation, "k", "f32", "f16", bias=True, centred=True, statistics=("mean", "spread"), group=64
    ),
    "across channels": partial(norm.across_channels, "k", "f16"),
    "sum normalised": partial(
        skip_normalisation, "k", "f16", beta=True, bias=True, centred=True, mean=True, spread=True, total=True, group=64
    ),
    "gated": partial(gated.normalisation, "k", "bf16", group=64, whole=False),
    "groups of channels": partial(group_norm.normalisation, "k", IMAGES, 64),
    "reduced": partial(reduce.reduction, "k", "ReduceL2", "f16", 2, 2, 64),
    "place of the largest": partial(reduce.arg_reduction, "k", True, True, "f16", 64),
    "lstm": partial(recurrent, "k", CELL, 32, 128),
    "gru": partial(recurrent, "k", replace(CELL, operator="GRU", type="f32", functions=CELL.functions[:2]), 32, 128),
    "counted": partial(selection.counted, "k", "f16"),
    "listed": partial(selection.listed, "k", "b8"),
    "coordinates": partial(selection.coordinates, "k", 3),
    "taken": partial(selection.taken, "k", "u16"),
    "regions": partial(roi_align, "k", "f16", "i64", False),
    "largest of regions": partial(roi_align, "k", "f64", "i64", True),
    "largest elements": partial(max_roi, "k", "bf16"),
    "displaced": partial(displaced, "k", "f16", 3, True),
    "cache": partial(indexing.tensor_scatter, "k", "u16", True),
    "samples": partial(grid_sample, "k", "bf16", "f32", 3, "cubic", "reflection", False),
    "largest in order": partial(topk.top_k, "k", "f16", True),
    "sorted": partial(topk.top_of_sorted, "k", "f16", True, True, True),
    "suppressed": partial(suppression.non_max_suppression, "k", False, True),
    "suppressed together": partial(suppression.non_max_suppression, "k", True, True, 256),
    "boxes that are left": partial(suppression.chosen, "k"),
    "spans": partial(
        elementwise, "k", [Operand("f32", (None, 1))], [Operand("f32", (None, 1))], "y0 = EXP(x0);", span=64
    ),
    "attention": partial(attention.attention, "k", replace(QUERIES, split=True)),
    "parts of attention": partial(attention.joined, "k", "f16", 40, zeros=False),
    "weights": partial(attention_rows.weights, "k", QUERIES, 1, ("f16", 2)),
    "padding": partial(padding, "k", "spans", bias="f16", future=True),
    "lengths": partial(cache.lengths, "k", watched=True),
    "appended": partial(cache.appended, "k", "u16", past=True, first=False),
    "rotated": partial(rotary, "k", "f16", "f32", interleaved=True, places="three", watched=True, turns=True),
    "embedded": partial(
        embed.embedding, "k", "f16", "i32", places=True, segments=True, total=True, group=64, watched=True
    ),
    "embedded bytes": partial(
        embed.embedding, "k", "f32", "i32", places=True, segments=True, total=False, group=64, bytes_="u8"
    ),
    "words of lines": partial(embed.ones, "k", "i32", mask=True),
    "recurrence": partial(linear_attention.recurrence, "k", STATE, 1),
    "causal convolution": partial(causal.convolution, "k", "f16", bias=True, past=True, gated=True),
    "last inputs": partial(causal.state, "k", "f16", past=True),
    "packed weights": partial(nbits.rows_by_column, "k", PACKED),
    "tiles of packed weights": partial(nbits.tiles, "k", replace(PACKED, bits=8, zeros="f16")),
    "packed rows": partial(nbits.rows, "k", "i64", "f16", 4, True),
    "bytes": partial(integer_product.integer_product, "k", BYTES),
    "extremes": partial(quantize.extremes, "k", alone=False),
    "by extremes": partial(quantize.by_extremes, "k", alone=False),
    "means of channels": partial(quantize.channel_means, "k", "u8", True, True),
    "chosen experts": partial(experts.chosen, "k", "f16", sparse=True, weighted=False, normalized=True),
    "pairs by expert": partial(experts.sorted_pairs, "k"),
    "layers of experts": partial(experts.layer, "k", EXPERTS),
    "gated experts": partial(experts.activated, "k", "swiglu", gated=False, fused=1, alpha=1.7, beta=1.0, limit=7.0),
    "mixed experts": partial(experts.mixed, "k", "f16"),
    "sums of the best": partial(experts.sums_of_best, "k"),
    "routed": partial(experts.routed, "k", "f16", grouped=True, sentinel=-1.0),
}
ON_PROCESSORS = {
    packed_experts.packed_layer, packed_product.packed_product, max_rows.max_rows, planes.planes, product.product,
    strips.depthwise,
}  # fmt: skip
"""Kernels that compute in vectors, which CUDA does not have."""
CALLED = {
    "sorting.before", "sorting.sort", "windows.every_second", "experts.column_head", "factors.stride", "quantize.saturated",
    "packed_experts.summed_vector", "packed_experts.unpacked",
}  # fmt: skip
"""Parts of kernels, named for the values they are about."""


def kernels() -> dict[str, Callable[..., str]]:
    """Every function of the package that is given a name and gives text."""
    found = {}
    for module in pkgutil.iter_modules(onnxplug_kernel_text.__path__):
        for name, made in vars(importlib.import_module(f"onnxplug_kernel_text.{module.name}")).items():
            if inspect.isfunction(made) and made.__module__.endswith(f".{module.name}") and name[0] != "_":
                signed = inspect.signature(made)
                if next(iter(signed.parameters), "") == "name" and signed.return_annotation == "str":
                    found[f"{module.name}.{name}"] = made
    return found


def test_every_kernel_that_cuda_can_run_is_here() -> None:
    tried = {text.func for text in TEXTS.values()} | ON_PROCESSORS
    assert {name for name, made in kernels().items() if made not in tried} == CALLED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_texts_compile_without_spills(architecture: str, tmp_path: Path) -> None:
    kernels = {f"k{n}": made for n, made in enumerate(TEXTS.values())}
    text = "\n".join(made.func(name, *made.args[1:], **made.keywords) for name, made in kernels.items())
    found = assembled(ptx(PRELUDE + text, architecture), architecture, tmp_path)
    assert found.keys() >= kernels.keys() and {spilt for spilt, _ in found.values()} == {0}


def test_sums_are_rounded_one_by_one_where_the_text_says_so() -> None:
    """What is not marked ``rn`` the assembler joins to ``fma``."""
    pytest.importorskip("cupy", reason="capability: CuPy (cupy is not installed)")
    from onnxplug_ep_cuda.codegen.bound import options

    text = TEXTS["suppressed together"]()
    assert b"mul.ftz.f32" not in ptx(PRELUDE + text, "80", options(text)[1:])
    assert b"mul.ftz.f32" in ptx(PRELUDE + text, "80")
