"""Attention of decoders with beams, and to blocks of keys, of ``com.microsoft``: against onnxruntime, and written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contrib_cases import case, flags, integers, normal, run
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable, model_of


def decoders() -> Iterator[Case]:
    heads, size, room, past = 2, 8, 6, 3
    width = heads * size
    filled = np.array([past], np.int32)
    for beams in (1, 2):
        batch = 2 * beams
        q, k, v = (normal(batch, 1, width) for _ in range(3))
        cache = [normal(batch, heads, room, size) for _ in range(2)]
        whose = integers(np.int32, 2, beams, room, low=0, high=beams)
        told, shared = {"num_heads": heads}, {"num_heads": heads, "past_present_share_buffer": 1}
        masks = {"none": None, "keys": np.concatenate([np.ones((batch, 1), np.int32), flags(batch, past)], axis=1)}
        for name, mask in masks.items():
            beam = [filled, np.array([beams], np.int32), whose]
            inputs = [q, k, v, mask, None, *cache, *beam]
            yield case("DecoderMaskedMultiHeadAttention", inputs, 3, f"{beams}-{name}", **shared)
        added = [q, k, v, None, normal(1, heads, 1, past + 1), *cache, filled]
        yield case("DecoderMaskedMultiHeadAttention", added, 3, f"{beams}-bias", scale=0.3, **shared)
        projected = [q, k, v, None, None, *cache, *beam, normal(3 * width)]
        yield case("DecoderMaskedMultiHeadAttention", projected, 3, f"{beams}-projected", **shared)
        across = [q, normal(batch, heads, 5, size), normal(batch, heads, 5, size)]
        yield case("DecoderMaskedMultiHeadAttention", across, 1, f"{beams}-cross", **told)
        seen = np.concatenate([np.ones((batch, 1), np.int32), flags(batch, 4)], axis=1)
        yield case("DecoderMaskedMultiHeadAttention", [*across, seen], 1, f"{beams}-cross, masked", **told)
        inputs = [q, k, v, None, None, None, *cache, filled, whose]
        yield case("MultiHeadAttention", inputs, 3, f"beams-{beams}", **told)


def sparse() -> Iterator[Case]:
    heads, shared, size, room, block = 4, 2, 16, 64, 16
    rows = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)
    cos, sin = normal(64, size // 2), normal(64, size // 2)
    for layouts in (1, 2):
        for packed in (False, True):
            for new, lengths in ((40, [40, 40]), (1, [50, 50]), (20, [20, 20])):
                if packed:
                    qkv: list[Any] = [normal(2, new, (heads + 2 * shared) * size), None, None]
                else:
                    qkv = [normal(2, new, n * size) for n in (heads, shared, shared)]
                past = [normal(2, shared, room, size) for _ in range(2)]
                ends = [np.array([max(lengths)], np.int32), np.array(lengths, np.int32)]
                inputs = [*qkv, *past, rows[:layouts], columns[:layouts], *ends]
                told = {"num_heads": heads, "kv_num_heads": shared, "sparse_block_size": block}
                label = f"{layouts}-{packed}-{new}-{lengths}"
                yield case("SparseAttention", inputs, 3, label, **told)
                turned = {"do_rotary": 1, "rotary_interleaved": layouts - 1, "scale": 0.2}
                yield case("SparseAttention", [*inputs, cos, sin], 3, f"{label}-rotary", **told | turned)


CASES = [*decoders()]
SPARSE = [*sparse()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", SPARSE, ids=str)
def test_like_onnxruntime_in_place(case: Case) -> None:
    """Its pasts and presents must be the same memory; what lies behind a sequence in them is nobody's."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model_of(case), options, providers=["CPUExecutionProvider"])
    given = [None if x is None else runtime.OrtValue.ortvalue_from_numpy(x) for x in case.inputs]
    binding = session.io_binding()
    for i, value in enumerate(given):
        if value is not None:
            binding.bind_ortvalue_input(f"x{i}", value)
    made, _, _ = ours = by_kernel(case)
    binding.bind_output("y0")
    for name, past in zip(("y1", "y2"), given[3:5], strict=True):
        binding.bind_ortvalue_output(name, past)
    session.run_with_iobinding(binding)
    theirs = [np.array(x) for x in binding.copy_outputs_to_cpu()]
    np.testing.assert_allclose(made, theirs[0], rtol=1e-4, atol=1e-5)
    for row, length in enumerate(case.inputs[8].tolist()):
        for got, want in zip(ours[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(got[row, :, :length], want[row, :, :length], rtol=1e-4, atol=1e-5)


def test_sequences_of_different_lengths_see_their_own_blocks() -> None:
    """In such a step onnxruntime mixes other values into those of the shorter sequences."""
    decode = next(c for c in SPARSE if c.label == "2-False-1-[50, 50]-rotary")
    inputs = [*decode.inputs[:7], np.array([60], np.int32), np.array([60, 33], np.int32), *decode.inputs[9:]]
    together = run("SparseAttention", inputs, 3, **decode.attributes)
    for row, length in enumerate((60, 33)):
        alone = [x[row : row + 1] for x in inputs[:5]]
        ends = [np.array([length], np.int32)] * 2
        apart = run("SparseAttention", [*alone, *inputs[5:7], *ends, *inputs[9:]], 3, **decode.attributes)
        np.testing.assert_allclose(together[0][row], apart[0][0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(together[1][row, :, :length], apart[1][0, :, :length])


@pytest.mark.parametrize("case", [c for c in CASES + SPARSE if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


def test_one_token_with_its_projection_behind_a_buffer() -> None:
    """onnxruntime has it on GPUs alone: Attention, where a beam may have another's past."""
    heads, room, past, width = 2, 6, 3, 16
    x, w, b, cache = normal(4, 1, width), normal(width, 3 * width), normal(3 * width), normal(2, 4, heads, room, 8)
    filled, told = np.array([past], np.int32), {"num_heads": heads, "past_present_share_buffer": 1}
    want = run("Attention", [x, w, b, None, cache, None, filled], 2, **told)
    got = run("DecoderMaskedSelfAttention", [x, w, b, None, cache, None, filled], 2, **told)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    whose = np.array([[[1] * room, [0] * room]] * 2, np.int32)
    beams = [np.array([2], np.int32), whose]
    (y, *_) = run("DecoderMaskedSelfAttention", [x, w, b, None, cache, None, filled, *beams], 2, **told)
    swapped = run("Attention", [x, w, b, None, cache[:, [1, 0, 3, 2]], None, filled], 2, **told)[0]
    np.testing.assert_allclose(y, swapped, rtol=1e-5, atol=1e-6)


def test_one_token_with_keys_and_values_beside_it() -> None:
    packed, cache = normal(2, 1, 48), [normal(2, 2, 6, 8) for _ in range(2)]
    told = {"num_heads": 2, "past_present_share_buffer": 1}
    behind = [None, None, *cache, np.array([3], np.int32)]
    got = run("DecoderMaskedMultiHeadAttention", [packed, None, None, *behind], 4, **told)
    want = run("DecoderMaskedMultiHeadAttention", [*np.split(packed, 3, axis=2), *behind], 4, **told)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    q, k = packed[:, :, :16].reshape(2, 1, 2, 8), got[1][:, :, :4]
    np.testing.assert_allclose(got[3], np.einsum("bqhd,bhkd->bhqk", q, k) / np.sqrt(8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("DecoderMaskedMultiHeadAttention", [normal(1, 2, 4), normal(1, 2, 4), normal(1, 2, 4)], {}),
        ("MultiHeadAttention", [*[normal(4, 1, 4)] * 3, *[None] * 3, *[normal(4, 2, 3, 2)] * 2, np.array([1], np.int32),
         np.zeros((3, 1, 3), np.int32)], {}),
        ("DecoderMaskedSelfAttention", [normal(1, 1, 4), normal(4, 12), normal(12), None, normal(2, 1, 2, 3, 2), None,
         np.array([1], np.int32)], {"do_rotary": 1}),
        ("SparseAttention", [*[normal(1, 1, 4)] * 3, *[normal(1, 2, 4, 2)] * 2, np.zeros((3, 2), np.int32),
         np.zeros((3, 1), np.int32), np.array([2], np.int32), np.array([2], np.int32)],
         {"kv_num_heads": 2, "sparse_block_size": 16}),
        ("SparseAttention", [*[normal(1, 1, 4)] * 3, *[normal(1, 2, 4, 2)] * 2, np.zeros((1, 2), np.int32),
         np.zeros((1, 1), np.int32), np.array([9], np.int32), np.array([9], np.int32)],
         {"kv_num_heads": 2, "sparse_block_size": 16}),
    ],
)  # fmt: skip
def test_refusals(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        run(op_type, inputs, num_heads=2, **attributes)
