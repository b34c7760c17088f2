"""Operators on quantized tensors: the launches that they have on any device, as this provider's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug_ep_opencl.kernels import between, integer_tiles, window
from onnxplug_ep_opencl.kernels.call import Call, Lower
from onnxplug_ep_opencl.kernels.channels_last import turning
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.entry import FLOATS, MS, Entry
from onnxplug_ep_opencl.kernels.shared import described, unfit, whole_groups
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_ep_opencl.shapes import CONVOLUTIONS, require_windows
from onnxplug_kernel_text.nodes import integers, qlinear, quantize, unwritten
from onnxplug_kernel_text.nodes.integers import Multiplication, grouped
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.launch import Pass


def multiplied(describe: Callable[[Call], Multiplication | None]) -> Lower:
    """The lowering of a product of 8-bit tensors."""

    def lowered(call: Call) -> Job:
        if call.op_type in CONVOLUTIONS:
            require_windows(call.input(0).shape, call.output().shape)
        if 0 in call.output().shape:
            return Job()
        made = describe(call)
        if made is None:
            unfit(call)
        return product(call, made)

    return lowered


def product(call: Call, made: Multiplication) -> Job:
    """The launches of a batch of products, in the form that is the device's."""
    if integer_tiles.fits(call, made):
        return integer_tiles.tiled(call, made)
    return whole_groups(call.target, call.op_type, grouped(call.op_type, made))


def passing(describe: Callable[[Call], Pass | Sequence[Pass] | None]) -> Lower:
    """The lowering of an operator that passes over its elements."""

    def lowered(call: Call) -> list[Launch]:
        found = describe(call)
        if found is None:
            unfit(call)
        made: list[Launch] = []
        for part in [found] if isinstance(found, Pass) else found:
            made += launch(call.target, call.op_type, part.inputs, [part.output], part.walked, part.body)
        return made

    return lowered


@described
def dynamic_quantize(call: Call) -> Described | None:
    """DynamicQuantizeLinear."""
    return quantize.dynamic_quantize(call, alone=call.target.registers)


def dynamic_matmul(call: Call) -> Multiplication | None:
    """DynamicQuantizeMatMul."""
    return integers.dynamic_matmul(call, alone=call.target.registers)


def entries() -> list[Entry]:
    """What is claimed."""
    small, wide = ("int8", "uint8"), ("int8", "uint8", "int16", "uint16", "int32")
    bytes_ = {"T": small, "T1": small, "T2": small, "T3": ("int32", *small)}

    def each_product(op_type: str, since: int, until: int, describe: Any, domain: str = "") -> Entry:
        types = {} if domain else bytes_
        lower = turning(multiplied(describe)) if (op_type, domain) == ("QLinearConv", MS) else multiplied(describe)
        return Entry(
            op_type, since, until, types, lower, pack=integer_tiles.packs, refuse=unwritten.product, domain=domain
        )  # fmt: skip

    def each(names: str, describe: Any) -> list[Entry]:
        types = {"T": small, "T8": small, "TV": ("float", *small)}
        return [Entry(n, 1, 1, types, passing(describe), refuse=qlinear.several, domain=MS) for n in names.split()]

    def step(
        op_type: str, describe: Any, since: int, until: int, types: Mapping[str, Sequence[str]], domain: str = ""
    ) -> Entry:
        return Entry(op_type, since, until, types, passing(describe), refuse=unwritten.quantization, domain=domain)

    numbers = {"T": wide, "T1": wide, "T2": FLOATS[:3], "T3": FLOATS[:3]}
    return [
        # a scale has the type of what is quantized from version 19, one of its own from 23: quotients are made in float32
        step("QuantizeLinear", quantize.quantize, 10, 18, {"T1": ("float", "int32")}),
        step("QuantizeLinear", quantize.quantize, 19, 22, {"T1": ("float",), "T2": wide[:4]}),
        step("QuantizeLinear", quantize.quantize, 23, 28, {"T1": (*FLOATS[:3], "int32"), "T2": ("float",), "T3": wide[:4]}),
        step("QuantizeLinear", quantize.quantize, 1, 1, {"T1": ("float",), "T2": wide[:4]}, MS),
        step("DequantizeLinear", quantize.dequantize, 10, 28, numbers),
        step("DequantizeLinear", quantize.dequantize, 1, 1, numbers, MS),
        Entry("DynamicQuantizeLinear", 11, 11, {}, dynamic_quantize),
        each_product("MatMulInteger", 10, 10, integers.matmul_integer),
        each_product("QLinearMatMul", 10, 21, integers.qlinear_matmul),
        each_product("ConvInteger", 10, 10, integers.conv_integer),
        each_product("QLinearConv", 10, 10, integers.qlinear_conv),
        each_product("QLinearConv", 1, 1, integers.qlinear_conv, MS),
        each_product("MatMulIntegerToFloat", 1, 1, integers.matmul_integer_to_float, MS),
        each_product("DynamicQuantizeMatMul", 1, 1, dynamic_matmul, MS),
        each_product("QGemm", 1, 1, integers.qgemm, MS),
        *each("QLinearAdd QLinearMul", qlinear.binary),
        *each("QLinearSigmoid QLinearLeakyRelu", qlinear.unary),
        *each("QLinearWhere", qlinear.where),
        *each("QLinearConcat", qlinear.concat),
        *[
            Entry(n, 1, 1, {"T": small}, turning(between.through_floats), refuse=between.refuses, domain=MS)
            for n in between.OPERATORS
        ],
        Entry("NhwcMaxPool", 1, 1, {"T": small}, turning(window.max_pool), refuse=window.unknown_rank, domain=MS),
        Entry(
            "QLinearGlobalAveragePool", 1, 1, {"T": small}, described(qlinear.global_average), refuse=qlinear.several,
            domain=MS,
        ),
    ]  # fmt: skip
