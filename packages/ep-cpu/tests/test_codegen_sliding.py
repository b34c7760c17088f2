"""Convolution of few channels to each result, by the kernel that reads every element once for all its taps."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_models import model, run_native
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxplug_ep_cpu.codegen.lower import choice
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_kernels.ops.conv import conv

RNG = np.random.default_rng(17)


CANDIDATES = choice.candidates


def sliding(target: choice.Target, layer: choice.Layer, winograd: bool) -> dict[choice.Algorithm, float]:
    """The layer by this kernel alone."""
    (found,) = (a for a in CANDIDATES(target, layer, winograd) if a.kind == "sliding")
    return {found: 0.0}


@settings(max_examples=40)
@given(st.data())
def test_against_float64(data: st.DataObject) -> None:
    """Groups narrower than a vector and wider ones, strides, dilations, padding, images, lines, operands at the end."""
    lanes, rank = host_target().lanes, data.draw(st.integers(1, 2))
    channels = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= lanes // 2]))
    per_group = channels
    groups = lanes // channels * data.draw(st.integers(1, 3))
    if data.draw(st.booleans()) or channels == 1:  # all lanes of a vector in one group
        channels, per_group, groups = data.draw(st.integers(1, 9)), lanes * data.draw(st.integers(1, 2)), groups % 3 + 1
    kernel = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    how = {name: [data.draw(st.integers(1, 2)) for _ in range(rank)] for name in ("strides", "dilations")}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, how["dilations"], strict=True)]
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * rank)]
    sizes = [max(1, r - 1 + data.draw(st.integers(1, 19)) - sum(pads[i::rank])) for i, r in enumerate(reach)]
    pads[rank:] = [max(p, r - n - q) for p, q, n, r in zip(pads[rank:], pads, sizes, reach, strict=False)]
    x = RNG.standard_normal((data.draw(st.integers(1, 2)), groups * channels, *sizes)).astype(np.float32)
    w, b = (
        RNG.standard_normal(s).astype(np.float32) for s in ((groups * per_group, channels, *kernel), groups * per_group)
    )
    want = conv(np, *(a.astype(np.float64) for a in (x, w, b)), group=groups, pads=pads, **how)
    z = RNG.standard_normal(want.shape).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=groups, pads=pads, **how),
        helper.make_node("Add", ["c", "z"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onnxplug_ep_cpu.codegen.lower.conv.candidates", sliding)
        (ours,) = run_native(model(nodes, {"x": x, "z": z}, ["y"], {"w": w, "b": b}), {"x": x, "z": z})
    np.testing.assert_allclose(ours, np.maximum(want + z, 0), rtol=1e-4, atol=2e-5)
