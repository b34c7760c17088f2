"""What is claimed: operators, versions, types, and the lowering of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels import (
    attention,
    contrib,
    displaced,
    einsum,
    elementwise,
    fourier,
    hybrid,
    index,
    integer_tiles,
    lines,
    move,
    nbits,
    product,
    quantized,
    recurrent,
    transposed,
    window,
    written,
)
from onnxplug_ep_opencl.kernels.call import Lower
from onnxplug_ep_opencl.kernels.entry import ALL, FLOATS, MS, NUMBERS, Entry
from onnxplug_ep_opencl.kernels.refusals import other_mode, other_power, other_rank, other_scale, trains
from onnxplug_kernel_text.nodes import selection
from onnxplug_kernel_text.nodes.indexing import booleans_joined, unknown_mode
from onnxplug_kernel_text.nodes.sample import unknown, unknown_pooling
from onnxplug_kernel_text.nodes.suppression import largest


def _shape(node: NodeView) -> Callable[[Any], np.ndarray]:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return lambda x: np.array(x.shape[start:end], np.int64)


def _size(node: NodeView) -> Callable[[Any], np.ndarray]:
    return lambda x: np.array(x.size, np.int64)


def _lines() -> list[Entry]:
    wide = (*FLOATS, "int32", "int64", "uint32", "uint64")
    sums = [
        Entry(n, 1, u, {"T": wide}, lines.reduce, (1,))
        for n, u in (("ReduceSum", 13), ("ReduceProd", 18), ("ReduceSumSquare", 18), ("ReduceL1", 18))
    ]
    real = [
        Entry(n, 1, u, {"T": FLOATS}, lines.reduce, (1,))
        for n, u in (("ReduceMean", 18), ("ReduceL2", 18), ("ReduceLogSum", 28), ("ReduceLogSumExp", 28))
    ]
    most = [
        Entry(n, 1, 20, {"T": (*wide, "int8", "uint8", "bool")}, lines.reduce, (1,)) for n in ("ReduceMax", "ReduceMin")
    ]
    return [
        *sums, *real, *most,
        *[Entry(n, 1, 13, {"T": NUMBERS}, lines.arg) for n in ("ArgMax", "ArgMin")],
        *[Entry(n, 1, 13, {"T": FLOATS}, lines.softmax) for n in ("Softmax", "LogSoftmax", "Hardmax")],
        Entry("LayerNormalization", 17, 17, {"T": FLOATS[:3], "U": ("float",)}, lines.layer_norm, refuse=other_scale),
        Entry("RMSNormalization", 23, 23, {"T": FLOATS[:3], "V": FLOATS[:3]}, lines.layer_norm, refuse=other_scale),
        *[
            Entry(
                "SimplifiedLayerNormalization", 1, 1, {"T": FLOATS[:3], "V": FLOATS[:3], "U": ("float",)}, lines.layer_norm,
                refuse=other_scale, domain=d,
            )
            for d in ("", MS)
        ],
        Entry("InstanceNormalization", 6, 22, {"T": FLOATS}, lines.instance_norm),
        Entry("GroupNormalization", 18, 21, {"T": FLOATS[:3]}, lines.group_norm),
        Entry("BatchNormalization", 6, 15, {"T": FLOATS, "T1": FLOATS, "T2": FLOATS}, lines.batch_norm, refuse=trains),
        Entry("LRN", 1, 13, {"T": FLOATS}, lines.lrn),
        Entry("Dropout", 7, 22, {"T": FLOATS}, lines.dropout, (1, 2), refuse=trains),
    ]  # fmt: skip


def _moves() -> list[Entry]:
    every = {"T": ALL}
    return [
        Entry("Identity", 1, 25, {"T": ALL, "V": ALL}, move.same, alias=True),
        Entry("Reshape", 5, 25, every, move.same, (1,), alias=True),
        Entry("Squeeze", 1, 25, every, move.same, (1,), alias=True),
        Entry("Unsqueeze", 1, 25, every, move.same, (1,), alias=True),
        Entry("Flatten", 1, 25, every, move.same, alias=True),
        Entry("Transpose", 1, 25, every, move.transpose),
        Entry("Expand", 8, 13, every, move.expand, (1,)),
        Entry("Tile", 6, 13, every, move.tile, (1,)),
        Entry("Concat", 4, 13, every, move.concat),
        Entry("Split", 2, 18, every, move.split, (1,)),
        Entry("Slice", 1, 13, every, move.slice_, (1, 2, 3, 4)),
        Entry("DepthToSpace", 1, 28, every, move.depth_to_space, refuse=other_rank),
        Entry("SpaceToDepth", 1, 28, every, move.space_to_depth, refuse=other_rank),
        Entry("Pad", 2, 25, every, move.pad, (1, 3), refuse=other_mode),
        Entry("ConstantOfShape", 9, 25, {"T2": ALL}, move.constant_of_shape, (0,)),
        Entry("Range", 11, 27, {"T": ("float", "double", "int16", "int32", "int64")}, move.range_, (0, 1, 2)),
        Entry("EyeLike", 9, 22, {"T1": ALL, "T2": ALL}, move.eye_like),
        *[Entry("Trilu", version, version, every, move.trilu, (1,), domain=d) for d, version in (("", 14), (MS, 1))],
        Entry("BitCast", 26, 26, {"T1": ALL, "T2": NUMBERS}, move.bit_cast),
    ]


def _indexing() -> list[Entry]:
    every, places = {"T": ALL}, ("int32", "int64")
    joined = ("int32", "int64", "uint32", "uint64")
    return [
        Entry("Gather", 1, 13, every, written.gather),
        Entry("GatherElements", 11, 13, every, written.gather_elements),
        Entry("GatherND", 11, 13, every, written.gather_nd),
        Entry("Scatter", 9, 11, every, written.scatter_elements),
        Entry("ScatterElements", 11, 18, every, written.scatter_elements, refuse=booleans_joined),
        Entry("ScatterND", 11, 18, every, written.scatter_nd, refuse=booleans_joined),
        Entry("TensorScatter", 24, 24, every, written.tensor_scatter, refuse=unknown_mode),
        Entry("OneHot", 9, 28, {"T1": NUMBERS, "T2": NUMBERS, "T3": ALL}, written.one_hot, (1,)),
        *[
            Entry(n, since, until, {"T": (*FLOATS, *joined), "T2": places}, index.cumulated, (1,))
            for n, since, until in (("CumSum", 11, 14), ("CumProd", 26, 26))
        ],
        Entry("TopK", 1, 24, {"T": NUMBERS}, written.top_k, (1,)),
        Entry("DFT", 17, 17, {"T1": FLOATS}, fourier.dft, (1,), refuse=fourier.refuses),
        Entry("DFT", 20, 20, {"T1": FLOATS}, fourier.dft, (1, 2), refuse=fourier.refuses),
        Entry("STFT", 17, 17, {"T1": FLOATS}, fourier.stft, (1, 3), pack=fourier.packs, refuse=fourier.refuses),
        Entry("NonMaxSuppression", 10, 11, {}, written.suppress, (2, 3, 4), largest=largest),
        Entry(
            "NonZero", 9, 13, every, written.non_zero,
            largest=selection.most_places, counted=selection.places_axis,
        ),
        Entry(
            "Compress", 9, 28, {"T": ALL, "T1": ("bool",)}, written.compress,
            largest=selection.most_slices, counted=selection.slices_axis,
        ),
        Entry("RoiAlign", 10, 22, {"T1": FLOATS, "T2": ("int64",)}, written.roi_align, refuse=unknown_pooling),
        Entry("MaxRoiPool", 1, 22, {"T": FLOATS}, written.max_roi_pool),
        Entry("MaxUnpool", 9, 22, {"T1": FLOATS, "T2": ("int64",)}, written.max_unpool, (2,)),
        Entry("ReverseSequence", 10, 28, every, written.reverse_sequence),
        Entry("Resize", 10, 10, {"T": FLOATS}, index.resize, (1,)),
        Entry("Resize", 11, 19, {"T1": FLOATS, "T2": FLOATS}, index.resize, (1, 2, 3), refuse=index.unresizable),
        Entry("GridSample", 16, 22, {"T1": FLOATS, "T2": FLOATS}, written.grid_sample, refuse=unknown),
        Entry("GridSample", 1, 1, {"T1": FLOATS, "T2": FLOATS}, written.grid_sample, refuse=unknown, domain=MS),
        Entry("Upsample", 7, 7, {"T": FLOATS}, index.resize),
        Entry("Upsample", 9, 10, {"T": FLOATS}, index.resize, (1,)),
    ]  # fmt: skip


def _heavy() -> list[Entry]:
    whole = ("int32", "int64", "uint32", "uint64")
    return [
        Entry("MatMul", 1, 13, {"T": (*FLOATS, *whole)}, product.launched(product.matmul), pack=product.packs),
        Entry(
            "Gemm",
            6,
            13,
            {"T": (*FLOATS, *whole)},
            product.launched(product.gemm),
            pack=product.packs,
            refuse=product.fractions,
        ),
        Entry("Einsum", 12, 28, {"T": (*FLOATS, *whole)}, einsum.einsum, refuse=einsum.beyond_products),
        Entry("Conv", 1, 22, {"T": FLOATS}, window.conv, refuse=window.unknown_rank, pack=window.packs),
        Entry(
            "ConvTranspose",
            1,
            22,
            {"T": FLOATS},
            transposed.conv_transpose,
            refuse=window.unknown_rank,
            pack=transposed.packs,
        ),
        Entry("DeformConv", 19, 22, {"T": FLOATS}, displaced.deform_conv, refuse=displaced.ungrouped),
        Entry("Col2Im", 18, 18, {"T": NUMBERS}, displaced.col2im, (1, 2)),
        Entry("MaxPool", 1, 22, {"T": (*FLOATS, "int8", "uint8")}, window.max_pool, refuse=window.unknown_rank),
        Entry("AveragePool", 1, 22, {"T": FLOATS}, window.mean_pool, refuse=window.unknown_rank),
        Entry("LpPool", 2, 22, {"T": FLOATS}, window.mean_pool, refuse=window.unknown_rank),
        *[
            Entry(
                n,
                7,
                22,
                {"T": FLOATS, "T1": ("int32",)},
                recurrent.recurrent,
                pack=recurrent.packs,
                refuse=recurrent.unwritten,
            )
            for n in ("RNN", "GRU", "LSTM")
        ],
        Entry("LpNormalization", 1, 22, {"T": ("float", "double")}, lines.lp_norm),
        Entry("GlobalAveragePool", 1, 22, {"T": FLOATS}, lines.whole),
        Entry("GlobalMaxPool", 1, 22, {"T": FLOATS}, lines.whole),
        Entry("GlobalLpPool", 2, 22, {"T": FLOATS}, lines.whole, refuse=other_power),
    ]


def _attention() -> list[Entry]:
    held = FLOATS[:3]
    return [
        Entry("RotaryEmbedding", 23, 23, {"T": held, "M": ("int64",)}, contrib.rotary),
        Entry(
            "Attention", 23, 25, {"T1": held, "T2": held, "U": ("bool", *held)}, attention.attention,
            refuse=attention.other,
        ),
    ]  # fmt: skip


def _contrib() -> list[Entry]:
    def each(op_type: str, lower: Lower, **others: Any) -> Entry:
        return Entry(op_type, 1, 1, others.pop("types", {"T": FLOATS[:3]}), lower, domain=MS, **others)

    real = {"T": ("float", "double")}
    return [
        *[each(n, contrib.gelu) for n in ("Gelu", "BiasGelu", "FastGelu", "QuickGelu")],
        *[
            each(n, lines.skip_norm, types={"T": FLOATS[:3], "U": ("float",)}, refuse=contrib.unnormalised)
            for n in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        ],
        *[
            each(n, product.launched(contrib.fused_matmul), types={"T": FLOATS}, pack=product.packs, refuse=contrib.unmatched)
            for n in ("FusedMatMul", "TransposeMatMul")
        ],
        each("FusedGemm", product.launched(contrib.fused_gemm), types=real, pack=product.packs, refuse=contrib.inactive),
        each("EmbedLayerNormalization", contrib.embed_norm, types={"T1": ("int32",), "T": ("float16", "float")}),
        *[
            each(n, contrib.rotary, types={"T": FLOATS[:3], "M": ("int64",)}, refuse=contrib.scaled)
            for n in ("RotaryEmbedding", "MRotaryEmbedding")
        ],
        each("MultiHeadAttention", attention.multi_head, refuse=attention.kept_elsewhere),
        each(
            "GroupQueryAttention", attention.group_query,
            types={"T": FLOATS[:3], "T_CACHE": FLOATS[:3], "M": ("int32",), "T_KV_SCALE": ()},
            host_inputs=(6,), refuse=attention.beyond_groups,
        ),
        each(
            "MatMulNBits", nbits.matmul,
            types={"T1": FLOATS[:3], "T2": ("uint8",), "T3": (*FLOATS[:3], "uint8"), "T4": ()}, refuse=nbits.otherwise,
        ),
        each(
            "GatherBlockQuantized", nbits.gather,
            types={"T1": ("uint8",), "Tind": ("int32", "int64"), "T2": FLOATS[:3]}, refuse=nbits.unblocked,
        ),
        each(
            "QAttention", attention.quantized_attention,
            types={"T1": ("int8", "uint8"), "T2": ("int8", "uint8"), "T3": ("float",), "T4": ("int32",)},
            pack=integer_tiles.packs, refuse=attention.unprojected,
        ),
        each(
            "QEmbedLayerNormalization", contrib.embed_norm,
            types={"T1": ("int32",), "T2": ("int8", "uint8"), "T": ("float",)},
        ),
        each("Attention", attention.self_attention, pack=product.packs, refuse=attention.in_place),
        each("FusedConv", contrib.fused_conv, types=real, pack=window.packs, refuse=contrib.unshaped),
    ]  # fmt: skip


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Every entry of every family."""
    shapes = [
        Entry("Shape", 1, 25, {"T": ALL}, host_outputs=(0,), create=_shape),
        Entry("Size", 1, 25, {"T": ALL}, host_outputs=(0,), create=_size),
    ]
    return (
        *elementwise.entries(),
        *_lines(),
        *_moves(),
        *_indexing(),
        *_heavy(),
        *_attention(),
        *_contrib(),
        *hybrid.entries(),
        *quantized.entries(),
        *shapes,
    )
