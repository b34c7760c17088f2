"""What a model's run could take at least on this machine, by the roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009):
its multiplications at the measured peak of fused multiply-adds, or its weights read once at the measured memory bandwidth."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

CHAINS = 12
"""Independent accumulators: more than latency times throughput of any FMA unit."""
ROUNDS = 8_000_000
TRIES = 5
BLOCK = 128 << 20
"""Bytes each thread reads: beyond any cache."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Floating-point operations and bytes per second of all threads together."""

    flops: float
    bandwidth: float


def measured(threads: int) -> Peaks:
    """The machine's peaks, the best of some tries."""
    import llvmlite.binding as llvm

    from onnxplug_ep_cpu.codegen.target import host_target

    target = host_target()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=target.cpu, features=target.features, opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_text(target.lanes)), machine)
    engine.finalize_object()
    multiply = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("multiply"))
    read = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("read"))
    blocks = [np.ones(BLOCK // 4, np.float32) for _ in range(threads)]
    steps = BLOCK // (4 * target.lanes * CHAINS)
    spent = min(_together([lambda: multiply(ROUNDS)] * threads) for _ in range(TRIES))
    moved = min(_together([_reader(read, block, steps) for block in blocks]) for _ in range(TRIES))
    done, volume = 2 * target.lanes * CHAINS * ROUNDS * threads, 4 * target.lanes * CHAINS * steps * threads
    return Peaks(done / spent, volume / moved)


def work(path: Path, feeds: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Floating-point operations of a model's products (a multiplication and an addition each) for these inputs, as far as
    shapes can be inferred, and the bytes that have to be read: weights and inputs."""
    model = onnx.load(path)
    for info in model.graph.input:
        if info.name in feeds:
            info.type.tensor_type.shape.Clear()
            for size in feeds[info.name].shape:
                info.type.tensor_type.shape.dim.add().dim_value = size
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {i.name: tuple(i.dims) for i in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            shapes[node.output[0]] = tuple(node.attribute[0].t.dims)
    for info in (*graph.input, *graph.value_info, *graph.output):
        dims = info.type.tensor_type.shape.dim
        if info.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes.setdefault(info.name, tuple(d.dim_value for d in dims))
    read = sum(numpy_helper.to_array(i).nbytes for i in graph.initializer) + sum(f.nbytes for f in feeds.values())
    return float(sum(_products(node, shapes) for node in graph.node)), float(read)


def line(flops: float, read: float, seconds: float, peaks: Peaks) -> dict[str, float]:
    """Shares of both peaks, and of what the roofline allows."""
    least = max(flops / peaks.flops, read / peaks.bandwidth)
    return {
        "gflop": round(flops / 1e9, 6),
        "mbytes": round(read / 1e6, 3),
        "of_flops": round(flops / peaks.flops / seconds, 4),
        "of_bandwidth": round(read / peaks.bandwidth / seconds, 4),
        "of_roofline": round(least / seconds, 4),
    }


def _products(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Operations of one node's products; 0 for one that has none, or whose shapes are not known."""
    ins, out = [shapes.get(name) for name in node.input], shapes.get(node.output[0])
    if node.op_type in ("Conv", "ConvInteger", "QLinearConv"):
        weights = ins[3] if node.op_type == "QLinearConv" else ins[1]
        return 0 if out is None or weights is None else 2 * math.prod(out) * math.prod(weights[1:])
    if node.op_type == "ConvTranspose":
        return 0 if ins[0] is None or ins[1] is None else 2 * math.prod(ins[0]) * math.prod(ins[1][1:])
    if node.op_type in ("MatMul", "MatMulInteger", "QLinearMatMul", "Gemm"):
        if out is None or ins[0] is None:
            return 0
        turned = any(a.name == "transA" and a.i for a in node.attribute)
        return 2 * math.prod(out) * ins[0][-2 if turned else -1]
    if node.op_type in ("LSTM", "GRU", "RNN"):
        if ins[0] is None or ins[1] is None or ins[2] is None:
            return 0
        return 2 * ins[0][0] * ins[0][1] * (math.prod(ins[1]) + math.prod(ins[2]))
    return 0


def _together(calls: list[Callable[[], object]]) -> float:
    """Seconds that all of them take, each in a thread."""
    others = [threading.Thread(target=call) for call in calls[1:]]
    start = time.perf_counter()
    for other in others:
        other.start()
    calls[0]()
    for other in others:
        other.join()
    return time.perf_counter() - start


def _reader(read: Any, block: np.ndarray, steps: int) -> Callable[[], object]:
    return lambda: read(block.ctypes.data, steps)


def _text(lanes: int) -> str:
    """LLVM IR of two loops over ``CHAINS`` vectors: one multiplies and adds in registers, one adds up memory."""
    vector = f"<{lanes} x float>"
    loops = [_loop(name, vector, lanes) for name in ("multiply", "read")]
    return f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})\n" + "\n".join(loops)


def _loop(name: str, vector: str, lanes: int) -> str:
    chains, body = range(CHAINS), []
    for c in chains:
        if name == "multiply":
            body.append(f"%n{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{c}, {vector} %a0, {vector} %a{c})")
        else:
            body += [f"%o{c} = add i64 %base, {c * lanes}", f"%p{c} = getelementptr float, ptr %data, i64 %o{c}"]
            body += [f"%v{c} = load {vector}, ptr %p{c}, align 4", f"%n{c} = fadd {vector} %a{c}, %v{c}"]
    if name == "read":
        body.insert(0, f"%base = mul i64 %i, {CHAINS * lanes}")
    phis = [f"%a{c} = phi {vector} [zeroinitializer, %entry], [%n{c}, %loop]" for c in chains]
    sums = [f"%s{c} = fadd {vector} {'%n0' if c == 0 else f'%s{c - 1}'}, %n{c}" for c in chains]
    arguments = "i64 %n" if name == "multiply" else "ptr %data, i64 %n"
    return "\n".join(
        [
            f"define float @{name}({arguments}) {{",
            "entry:\n  br label %loop\nloop:",
            "%i = phi i64 [0, %entry], [%next, %loop]",
            *phis,
            *body,
            "%next = add i64 %i, 1",
            "%more = icmp slt i64 %next, %n",
            "br i1 %more, label %loop, label %done\ndone:",
            *sums,
            f"%x = extractelement {vector} %s{CHAINS - 1}, i32 0\nret float %x\n}}",
        ]
    )
