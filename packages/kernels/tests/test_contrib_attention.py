"""Attention of ``com.microsoft``, and what goes with it: against onnxruntime, and written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contrib_cases import RNG, F, case, flags, integers, normal, run, uniform
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable

from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal


def attention() -> Iterator[Case]:
    batch, length, heads, size = 2, 4, 2, 8
    width = heads * size
    x, w, bias = normal(batch, length, width), 0.3 * normal(width, 3 * width), normal(3 * width)
    past = normal(2, batch, heads, 3, size)
    for causal in (0, 1):
        masks = {
            "none": None,
            "keys": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
            "all hidden": np.zeros((batch, length), np.int32),
            "ends": np.array([3, 2], np.int32),
            "ends and starts": np.array([3, 4, 1, 0], np.int32),
            "pairs": flags(batch, length, length),
        }
        common = {"num_heads": heads, "unidirectional": causal}
        for name, mask in masks.items():
            yield case("Attention", [x, w, bias, mask], 2, f"{name}-{causal}", **common)
        added = [x, w, bias, masks["keys"], None, normal(batch, heads, length, length)]
        yield case("Attention", added, 1, f"bias-{causal}", scale=0.3, mask_filter_value=-500.0, **common)
        yield case("Attention", added, 1, f"unscaled-{causal}", scale=0.0, **common)
        yield case("Attention", [x, w, bias, flags(batch, 7), past], 2, f"past-{causal}", **common)
        yield case("Attention", [x[:, :1], w, bias, None, past], 2, f"decode-{causal}", **common)
        sizes = {"qkv_hidden_sizes": [width, width, 6], **common}
        wide = [x, normal(width, 2 * width + 6), normal(2 * width + 6)]
        yield case("Attention", wide, 1, f"sizes-{causal}", **sizes)
        for dtype, limits in ((np.uint8, {}), (np.int8, {"low": -60, "high": 60})):
            xq, wq = integers(np.uint8, batch, length, width), integers(dtype, width, 3 * width, **limits)
            scales = [bias, np.array(0.01, F), np.array(0.005, F)]
            zeros = [np.array(128, np.uint8), np.array(3, dtype)]
            label = f"{np.dtype(dtype).name}-{causal}"
            yield case("QAttention", [xq, wq, *scales, masks["ends"], *zeros, past[..., :0, :]], 2, label, **common)
            yield case("QAttention", [xq, wq, *scales, None, *zeros, past], 2, f"{label}-past", **common)
        q, k, v = (normal(batch, length, width) for _ in range(3))
        for name in ("none", "keys", "ends", "pairs"):
            yield case("MultiHeadAttention", [q, k, v, bias, masks[name]], 3, f"{name}-{causal}", **common)
        added = [q, k, v, None, None, normal(1, heads, length, length)]
        yield case("MultiHeadAttention", added, 1, f"bias-{causal}", scale=0.4, **common)
        yield case("MultiHeadAttention", added, 1, f"unscaled-{causal}", scale=0.0, **common)  # as if it were left out
        cache = [None, None, None, *(normal(batch, heads, 3, size) for _ in range(2))]
        yield case("MultiHeadAttention", [q, k, v, *cache], 3, f"past-{causal}", **common)
        yield case("MultiHeadAttention", [q[:, :1], k[:, :1], v[:, :1], *cache], 3, f"decode-{causal}", **common)
    crossed = [normal(batch, heads, 6, size) for _ in range(2)]
    yield case("MultiHeadAttention", [q, *crossed, bias], 1, "cross, split", num_heads=heads)
    yield case("MultiHeadAttention", [q, normal(batch, 6, width), normal(batch, 6, 6)], 1, "cross", num_heads=heads)


def grouped() -> Iterator[Case]:
    heads, shared, size = 4, 2, 16
    cos, sin = normal(40, size // 2), normal(40, size // 2)
    for interleaved in (0, 1):
        x, places = normal(2, 5, heads * size), RNG.integers(0, 20, size=(2, 5))
        turned = {"interleaved": interleaved}
        yield case("RotaryEmbedding", [x, places, cos, sin], label=f"{interleaved}", **turned)
        yield case("RotaryEmbedding", [x, np.array([3]), cos, sin], label=f"{interleaved}-offset", **turned)
        split = [normal(2, heads, 5, size), places, cos, sin]
        yield case("RotaryEmbedding", split, label=f"{interleaved}-4d", **turned)
        part = {"num_heads": heads, "rotary_embedding_dim": 8, **turned}
        yield case("RotaryEmbedding", [x, places, cos[:, :4], sin[:, :4]], label=f"{interleaved}-part", **part)

    def step(
        label: str,
        new: int,
        lengths: list[int],
        room: int | None,
        packed: bool = False,
        rotary: bool = False,
        more: list[Any] | None = None,
        dtype: Any = F,
        release: tuple[int, int] = (1, 31),
        outputs: int = 3,
        **attributes: Any,
    ) -> Case:
        batch = len(lengths)
        if packed:
            qkv = [normal(batch, new, (heads + 2 * shared) * size, dtype=dtype), None, None]
        else:
            qkv = [normal(batch, new, n * size, dtype=dtype) for n in (heads, shared, shared)]
        past = [None if room is None else normal(batch, shared, room, size, dtype=dtype) for _ in range(2)]
        sizes = [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]
        angles = [cos.astype(dtype), sin.astype(dtype)] if rotary else [None, None]
        inputs = [*qkv, *past, *sizes, *angles, *(more or [])]
        while inputs[-1] is None:
            inputs.pop()
        attributes |= {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary)}
        return case(
            "GroupQueryAttention", inputs, outputs, label, 1e-5 if dtype == F else 1e-2, release=release, **attributes
        )

    for packed in (False, True):
        for rotary in (False, True):
            label = f"{'packed' if packed else 'apart'}-{'rotary' if rotary else 'plain'}"
            yield step(f"{label}-prompt", 5, [5, 5], None, packed, rotary)
            yield step(f"{label}-buffer", 5, [5, 5], 12, packed, rotary)
            yield step(f"{label}-decode", 1, [7, 7], 6, packed, rotary)
            yield step(f"{label}-ragged", 1, [7, 4], 12, packed, rotary)
            yield step(f"{label}-chunk", 3, [9], 6, packed, rotary)
    yield step("interleaved", 5, [5, 5], None, rotary=True, rotary_interleaved=1)
    yield step("half", 5, [5, 5], None, rotary=True, dtype=np.float16)
    for name, attributes in {
        "softcap": {"softcap": 2.0},
        "scale": {"scale": 0.1},
        "smooth": {"smooth_softmax": 1},
        "smooth, capped": {"smooth_softmax": 1, "softcap": 2.0},
        "window": {"local_window_size": 3},
        "both ways": {"causal": 0},
    }.items():
        yield step(f"{name}-prompt", 5, [5, 5], None, **attributes)
        yield step(f"{name}-decode", 1, [7, 5], 6, **attributes)
    yield step("bias", 5, [5, 5], None, more=[None, normal(2, heads, 5, 5)])
    for kind in (1, 2):
        for name, attributes in {"all": {}, "window": {"local_window_size": 3}, "capped": {"softcap": 2.0}}.items():
            yield step(f"scores-{kind}-{name}", 5, [5, 5], None, outputs=4, qk_output=kind, **attributes)
    yield step("sink", 5, [5, 5], None, more=[None, None, normal(heads)])
    yield step("places", 1, [7, 4], 6, rotary=True, more=[np.array([[6], [3]])])
    chunk = [*[None] * 7, np.array([3, 3], np.int32)]
    yield step("lengths of rows", 3, [7, 4], 12, rotary=True, more=chunk, release=(1, 32))
    for bits, dtype, stored in ((8, np.int8, size), (4, np.uint8, size // 2)):
        for kind, shape in (("PER_TENSOR", (1,)), ("PER_CHANNEL", (1, shared, 1, size))):
            qkv = [normal(2, 1, n * size) for n in (heads, shared, shared)]
            past = [integers(dtype, 2, shared, 6, stored) for _ in range(2)]
            scales = [uniform(0.01, 0.03, *shape) * 128 / 2 ** (bits - 1) for _ in range(2)]
            inputs = [*qkv, *past, np.array([6, 6], np.int32), np.array(7, np.int32), *[None] * 5, *scales]
            quantization = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
            counts = {"num_heads": heads, "kv_num_heads": shared}
            yield case("GroupQueryAttention", inputs, 3, f"{kind}-{bits}", **counts, **quantization)


CASES = [*attention(), *grouped()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


def test_packed_queries_keys_and_values() -> None:
    packed = normal(2, 4, 2, 3, 8)
    apart = [packed[:, :, :, i].reshape(2, 4, 16) for i in range(3)]
    np.testing.assert_array_equal(
        run("MultiHeadAttention", [packed], num_heads=2)[0], run("MultiHeadAttention", apart, num_heads=2)[0]
    )
    pairs = np.stack([x.reshape(2, 4, 2, 8) for x in apart[1:]], axis=3)
    np.testing.assert_array_equal(
        run("MultiHeadAttention", [apart[0], pairs], num_heads=2)[0],
        run("MultiHeadAttention", apart, num_heads=2)[0],
    )


def test_normed_queries_and_keys() -> None:
    """With unit weights each head is divided by its root mean square, whatever its length was."""
    q, k, v = normal(1, 3, 32), normal(1, 3, 16), normal(1, 3, 16)
    sizes = [None, None, np.array([2], np.int32), np.array(3, np.int32)]
    weights = [*[None] * 7, np.ones(8, F), np.ones(8, F)]
    counts = {"num_heads": 4, "kv_num_heads": 2}
    plain = run("GroupQueryAttention", [q, k, v, *sizes, *weights], **counts)[0]
    longer = run("GroupQueryAttention", [5 * q, 7 * k, v, *sizes, *weights], **counts)[0]
    np.testing.assert_allclose(plain, longer, rtol=1e-4, atol=1e-5)
    told = {"q_norm_epsilon": 0.3, "k_norm_epsilon": 0.1, "qk_norm_epsilon": 10.0}
    (got,) = run("GroupQueryAttention", [q, k, v, *sizes, *weights], **counts, **told)
    roots = [
        np.sqrt(np.mean(x.reshape(1, 3, -1, 8) ** 2, axis=-1) + epsilon).repeat(8, -1)
        for x, epsilon in ((q, 0.3), (k, 0.1))
    ]
    want = run("GroupQueryAttention", [q / roots[0], k / roots[1], v, *sizes], **counts)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_new_rows_that_do_not_count() -> None:
    """A padded chunk gives what each sequence's own rows give alone, and leaves an idle sequence's cache as it was."""
    counts, told = [3, 0, 1], {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    q, k, v = (normal(3, 3, n * 16) for n in (4, 2, 2))
    past = [normal(3, 2, 9, 16) for _ in range(2)]
    ends, total = np.array([6, 4, 0], np.int32), np.array(8, np.int32)
    angles = [normal(8, 8), normal(8, 8)]
    inputs = [q, k, v, *past, ends, total, *angles, *[None] * 7, np.array(counts, np.int32)]
    chunk = case("GroupQueryAttention", inputs, 3, release=(1, 32), **told)
    y, *presents = by_kernel(chunk)
    for b, count in enumerate(counts):
        end = int(ends[b]) + 1
        for old, new, present in zip(past, (k, v), presents, strict=True):
            np.testing.assert_array_equal(present[b, :, : end - count], old[b, :, : end - count])
            if new is v:
                np.testing.assert_array_equal(
                    present[b, :, end - count : end], v[b, :count].reshape(count, 2, 16).swapaxes(0, 1)
                )
        if count:
            own = [x[b : b + 1, :count] for x in (q, k, v)]
            sizes = [ends[b : b + 1], np.array(end, np.int32)]
            want = run("GroupQueryAttention", [*own, *(x[b : b + 1] for x in past), *sizes, *angles], 1, **told)[0]
            np.testing.assert_allclose(y[b, :count], want[0], rtol=1e-5, atol=1e-6)
    theirs, *caches = by_onnxruntime(chunk)
    for b, count in enumerate(counts):
        np.testing.assert_allclose(y[b, :count], theirs[b, :count], rtol=1e-4, atol=1e-5)
        for mine, cache in zip(presents, caches, strict=True):
            np.testing.assert_allclose(mine[b, :, : ends[b] + 1], cache[b, :, : ends[b] + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("counts", "lengths", "room"),
    [([4, 1], [5, 5], 6), ([-1, 1], [5, 5], 6), ([2], [5, 5], 6), ([3, 3], [2, 5], 6), ([1, 1], [9, 5], 9),
     ([1, 1], [5, 5], 2), ([1, 1], [0, 5], 6)],
)  # fmt: skip
def test_counts_of_new_rows_that_do_not_fit(counts: list[int], lengths: list[int], room: int) -> None:
    q, past = normal(2, 3, 16), normal(2, 2, room, 8)
    sizes = [np.array(lengths, np.int32) - 1, np.array(8, np.int32)]
    inputs = [q, q, q, past, past, *sizes, *[None] * 9, np.array(counts, np.int32)]
    with pytest.raises(ValueError, match="query_seqlens"):
        run("GroupQueryAttention", inputs, num_heads=2, kv_num_heads=2)


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (2, "must be at least kv_sequence_length"),
        (5, "must equal past_sequence_length \\+ kv_sequence_length .* Got total_sequence_length=5"),
        ([3, 3], "tensor must be of one element"),
    ],
)
def test_a_total_length_that_is_not_that_of_old_and_new_rows(total: int | list[int], words: str) -> None:
    q = normal(1, 3, 16)
    sizes = [np.array([2], np.int32), np.array(total, np.int32)]
    with pytest.raises(ValueError, match=f"total_sequence_length {words}"):
        run("GroupQueryAttention", [q, q, q, None, None, *sizes], num_heads=2, kv_num_heads=2)


def test_heads_that_are_not_shared_evenly() -> None:
    sizes = [np.array([2], np.int32), np.array(3, np.int32)]
    with pytest.raises(Refusal, match="num_heads must be a multiple of kv_num_heads") as raised:
        run(
            "GroupQueryAttention",
            [normal(1, 3, 24), *[normal(1, 3, 16)] * 2, None, None, *sizes],
            num_heads=3,
            kv_num_heads=2,
        )
    assert raised.value.status == INVALID_ARGUMENT


def test_sines_of_other_places_than_cosines() -> None:
    sizes = [np.array([2], np.int32), np.array(3, np.int32)]
    inputs = [normal(1, 3, 32)] * 3 + [None, None, *sizes, normal(8, 8), normal(9, 8)]
    with pytest.raises(
        Refusal, match=r"must have the same shape. Got cos_cache shape \{8,8\} and sin_cache shape \{9,8\}"
    ):
        run("GroupQueryAttention", inputs, num_heads=2, kv_num_heads=2, do_rotary=1)


@pytest.mark.parametrize("shape", [(2, 3), (1, 4), (1, 2, 3), (3,)])
def test_masks_of_other_keys(shape: tuple[int, ...]) -> None:
    mask = np.ones(shape, np.int32)
    with pytest.raises(Refusal, match="a mask has shape"):
        run("Attention", [normal(1, 3, 8), normal(8, 24), normal(24), mask], num_heads=2)
    with pytest.raises(Refusal, match="a mask has shape"):
        run("MultiHeadAttention", [*[normal(1, 3, 8)] * 3, None, mask], num_heads=2)


def test_no_angles_turn_nothing() -> None:
    counts, sizes = {"num_heads": 2, "kv_num_heads": 2}, [np.array([2], np.int32), np.array(3, np.int32)]
    inputs = [normal(1, 3, 32)] * 3 + [None, None, *sizes]
    want = run("GroupQueryAttention", inputs, **counts)[0]
    got = run("GroupQueryAttention", [*inputs, *[normal(8, 0)] * 2], **counts, do_rotary=1)[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    """onnxruntime has it on GPUs alone; buckets as transformers' T5 numbers them."""
    buckets, heads, distance, queries, keys = 8, 2, 20, 5, 30
    table = normal(heads, buckets)
    (y,) = run(
        "RelativePositionBias", [table.reshape(buckets, heads), np.array([queries]), np.array([keys])],
        max_distance=distance, is_bidirectional=both,
    )  # fmt: skip

    def bucket(query: int, key: int) -> int:
        count, place, behind = buckets, 0, query - key
        if both:
            count //= 2
            place, behind = (count if behind < 0 else 0), abs(behind)
        behind = max(behind, 0)
        half = count // 2
        if behind < half:
            return place + behind
        further = int(np.log(np.float32(behind) / half) / np.log(distance / half) * (count - half))
        return place + min(half + further, count - 1)

    wanted = [[[table[h, bucket(i, j)] for j in range(keys)] for i in range(queries)] for h in range(heads)]
    np.testing.assert_array_equal(y, np.array([wanted]))


def test_gated_relative_position_bias() -> None:
    """onnxruntime has it on GPUs alone."""
    batch, length, heads, size, gate = 2, 3, 2, 4, 6
    q, q_bias, places = normal(batch, length, heads * size), normal(heads * size), normal(1, heads, length, length)
    weight, bias, eco = normal(size, gate), normal(gate), normal(1, heads, 1, 1)
    (y,) = run("GatedRelativePositionBias", [q, q_bias, places, weight, bias, eco], num_heads=heads)
    split = (q + q_bias).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    u, r = np.split(1 / (1 + np.exp(-(split @ weight + bias).reshape(batch, heads, length, 2, -1).sum(-1))), 2, axis=-1)
    np.testing.assert_allclose(y, (u * (r * eco - 1) + 2) * places, rtol=1e-4, atol=1e-5)
    counts = np.array([3, 2], np.int32)
    words, offsets, _, _ = run("RemovePadding", [q, counts], 4)
    (packed,) = run("GatedRelativePositionBias", [words, q_bias, places, weight, bias, eco, offsets], num_heads=heads)
    np.testing.assert_allclose(packed[0], y[0], rtol=1e-5)
    np.testing.assert_allclose(packed[1, :, :2], y[1, :, :2], rtol=1e-5)


def test_padding_is_removed_and_restored() -> None:
    """onnxruntime has it on GPUs alone."""
    x = normal(3, 4, 2)
    words, offsets, ends, longest = run("RemovePadding", [x, np.array([2, 4, 0], np.int32)], 4)
    np.testing.assert_array_equal(words, np.concatenate([x[0, :2], x[1]]))
    assert offsets.tolist() == [[0, 1, 4, 5], [6, 7, 2, 3], [8, 9, 10, 11]]
    assert (ends.tolist(), longest.tolist()) == ([0, 2, 6, 6], [4])
    (back,) = run("RestorePadding", [words, offsets])
    x[0, 2:], x[2] = 0, 0
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (0, np.uint8), (4, np.int8)])
def test_caches_of_another_type_than_their_numbers_of_bits_are_stored_in(bits: int, dtype: type) -> None:
    """As in onnxruntime; a cast of what is negative would depend on the device."""
    inputs = [*(normal(2, 1, n * 16) for n in (4, 2, 2)), *(integers(dtype, 2, 2, 6, 16) for _ in range(2))]
    inputs += [np.array([6, 6], np.int32), np.array(7, np.int32), *[None] * 5, *(np.float32([0.1]) for _ in range(2))]
    kinds = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits}
    with pytest.raises(Refusal, match="do not hold numbers"):
        run("GroupQueryAttention", inputs, num_heads=4, kv_num_heads=2, **kinds)
