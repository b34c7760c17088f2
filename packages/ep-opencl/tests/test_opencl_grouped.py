"""GroupQueryAttention through sessions, in both kernel forms, against the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencl_models import PROVIDER, needs_device, run
from test_opencl_attention import MS, bound, compare, model, numbers

import onnxplug as ort
from onnxplug.contract.errors import InvalidArgument

pytestmark = needs_device
SLOW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
SIZE = 8
FORMS = ["register", "local"]


def step(
    rows: int, past: int, *, batch: int = 2, heads: int = 4, kv_heads: int = 2, packed: bool = False, seed: int = 0,
    rotary: bool = False, bias: bool = False, dtype: Any = np.float32,
) -> list[np.ndarray | None]:  # fmt: skip
    """Operands of a decoder's step, the first one without a past; sequences differ in length."""
    rng = np.random.default_rng(seed)
    total = past + rows
    lasts = rng.integers(0 if past == 0 else rows - 1, total, batch).astype(np.int32)
    parts: list[np.ndarray | None]
    if packed:
        parts = [numbers(rng, batch, rows, (heads + 2 * kv_heads) * SIZE, dtype=dtype), None, None]
    else:
        parts = [numbers(rng, batch, rows, n * SIZE, dtype=dtype) for n in (heads, kv_heads, kv_heads)]
    caches = [numbers(rng, batch, kv_heads, past, SIZE, dtype=dtype) for _ in range(2)]
    turns = rng.uniform(0, 6, (total + 3, SIZE // 2))
    angles = [f(turns).astype(dtype) if rotary else None for f in (np.cos, np.sin)]
    added = numbers(rng, 1, heads, rows, total, dtype=dtype) if bias else None
    return [*parts, *caches, lasts, np.array([total], np.int32), *angles, None, added]


@SLOW
@given(st.data())
def test_steps(data: st.DataObject) -> None:
    one = data.draw
    kv_heads, first = one(st.integers(1, 3)), one(st.booleans())
    heads = kv_heads * one(st.integers(1, 3))
    past, rows = (0, one(st.integers(1, 20))) if first else (one(st.integers(1, 40)), one(st.integers(1, 3)))
    rotary, bias, causal = one(st.booleans()), one(st.booleans()), one(st.sampled_from([1, 1, 0]))
    attributes: dict[str, Any] = {
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        "do_rotary": int(rotary),
        "causal": causal,
    }
    if one(st.booleans()):
        attributes |= {"local_window_size": one(st.integers(1, 12))}
    if one(st.booleans()):
        attributes |= {"softcap": 3.0, "scale": 0.3}
    operands = step(
        rows, past, batch=one(st.integers(1, 3)), heads=heads, kv_heads=kv_heads, packed=one(st.booleans()),
        seed=one(st.integers(0, 99)), rotary=rotary, bias=bias,
    )  # fmt: skip
    compare(
        "GroupQueryAttention", operands, bound(rows + past), outputs=3, form=one(st.sampled_from(FORMS)), **attributes
    )


@pytest.mark.parametrize("form", FORMS)
def test_halves_and_caches_that_nobody_asks_for(form: str) -> None:
    operands = step(2, 9, rotary=True, dtype=np.float16)
    given_ = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    compare("GroupQueryAttention", operands, 2e-3, form=form, **given_)  # values below 4, turned keys rounded to halves


def test_scores_of_no_key_are_left_to_the_next_provider() -> None:
    operands = [*step(1, 3), np.zeros(4, np.float32)]
    given_ = {"num_heads": 4, "kv_num_heads": 2}
    data = model("GroupQueryAttention", operands, 3, MS, given_, 21)
    session = ort.InferenceSession(data, providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"it": "CPUExecutionProvider"}
    assert "a score of no key" in str(session.explain())


@pytest.mark.parametrize(
    ("rows", "past", "lasts", "total", "told"),
    [
        (1, 3, [3, 3], [5], "must equal past_sequence_length"),
        (1, 3, [3, 3], [0], "must be positive, got 0"),
        (1, 3, [3, 3], [4, 4], "of one element"),
        (3, 3, [2, 2], [2], "at least kv_sequence_length"),
        (1, 3, [9, 3], [4], "seqlens_k"),
        (1, 3, [3, -1], [4], "seqlens_k"),
        (1, 3, [3, 2], [2], "seqlens_k"),
        (4, 0, [4, 3], [4], "seqlens_k"),
    ],
)
def test_totals_and_lengths_that_do_not_go_with_the_caches(
    rows: int, past: int, lasts: list[int], total: list[int], told: str
) -> None:
    """onnxruntime refuses them with the same class and these words."""
    operands = step(rows, past)
    operands[5:7] = np.array(lasts, np.int32), np.array(total, np.int32)
    feeds = {f"x{n}": a for n, a in enumerate(operands) if a is not None}
    data = model("GroupQueryAttention", operands, 3, MS, {"num_heads": 4, "kv_num_heads": 2}, 21)
    with pytest.raises(InvalidArgument, match=f"it.*{told}"):
        run(data, feeds)
