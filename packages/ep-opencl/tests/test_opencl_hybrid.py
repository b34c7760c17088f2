"""Linear attention, causal convolutions, their gates and mixtures of experts against the CPU provider in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opencl_models import PROVIDER, needs_device
from test_opencl_attention import EPS, MS, Operands, compare, model

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument

pytestmark = needs_device
HALF = float(np.finfo(np.float16).eps)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("rule", "heads", "by_key", "past", "attributes"),
    [
        ("linear", (2, 2), False, False, {}),
        ("gated", (4, 2), True, True, {}),
        ("delta", (2, 2), False, True, {"scale": 0.5}),
        ("gated_delta", (2, 4), False, True, {"state_window": 3}),
        ("gated_delta", (2, 1), True, False, {"state_window": 7}),
    ],
)
@pytest.mark.parametrize("form", ["register", "local"])
def test_linear_attention(
    rule: str, heads: tuple[int, int], by_key: bool, past: bool, attributes: dict[str, Any], form: str
) -> None:
    (queries, keys), size, width, batch, length = heads, 6, 37, 2, 5
    decay = -np.abs(normal(batch, length, keys * (size if by_key else 1))) if "gated" in rule else None
    beta = np.abs(normal(batch, length, keys if past else 1, seed=1)) % 1 if "delta" in rule else None
    window = (attributes["state_window"],) if "state_window" in attributes else ()
    operands: Operands = [
        normal(batch, length, queries * size), normal(batch, length, keys * size, seed=1),
        normal(batch, length, keys * width, seed=2), normal(*window, batch, keys, size, width) if past else None, decay, beta,
    ]  # fmt: skip
    while operands[-1] is None:
        operands.pop()
    given = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule, **attributes}
    # Sums of six products at each of five steps, of a state that grows to some tens.
    compare("LinearAttention", operands, 300 * EPS, outputs=2, form=form, **given)


@pytest.mark.parametrize(("domain", "opset"), [("", 27), (MS, 21)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_hybrid_operators_of_onnx(domain: str, opset: int, dtype: Any) -> None:
    operands: Operands = [normal(1, 3, 8, dtype=dtype, seed=n) for n in range(3)]
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    tolerance = 40 * (EPS if dtype == np.float32 else HALF)
    compare("LinearAttention", operands, tolerance, outputs=2, domain=domain, opset=opset, **attributes)
    operands = [normal(2, 5, 4, dtype=dtype), normal(5, 1, 3, dtype=dtype), normal(5, dtype=dtype)]
    compare("CausalConvWithState", operands, tolerance, outputs=2, domain=domain, opset=opset, activation="silu")


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(("length", "taps", "dilation"), [(7, 4, 1), (2, 3, 3), (4, 1, 1), (0, 3, 1)])
def test_causal_convolution(last: int, past: bool, length: int, taps: int, dilation: int) -> None:
    channels, reach = (2, 3), (taps - 1) * dilation
    x, state = ((2, length, *channels), (2, reach, *channels)) if last else ((2, 6, length), (2, 6, reach))
    operands: Operands = [normal(*x), normal(6, 1, taps), None, *([normal(*state)] if past else [])]
    compare(
        "CausalConvWithState",
        operands[: None if past else 2],
        16 * EPS,
        outputs=2,
        channels_last=last,
        dilation=dilation,
    )


def test_convolutions_whose_states_are_laid_out_otherwise_are_left_to_others() -> None:
    data = model(
        "CausalConvWithState", [normal(1, 5, 4), normal(4, 1, 3)], 2, MS, {"channels_last": 1, "state_length": 4}, 21
    )
    session = ort.InferenceSession(data, providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"it": "CPUExecutionProvider"}
    assert "state_length" in session.explain().nodes[0]["reasons"][PROVIDER]


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(("activation", "dtype"), [("silu", np.float32), ("sigmoid", np.float16)])
def test_gates(activation: str, dtype: Any, form: str) -> None:
    x, gate = (normal(2, 3, 74, dtype=dtype, seed=n) for n in range(2))
    tolerance = 40 * EPS if dtype == np.float32 else 8 * HALF
    compare("GatedRMSNorm", [x, normal(37, dtype=dtype), gate], tolerance, form=form, activation=activation)
    a, b = (normal(2, 3, 5, dtype=dtype, seed=n) * 20 for n in range(2))
    operands: Operands = [a.astype(dtype), normal(5), -np.abs(normal(5, seed=1)), b.astype(dtype)]
    compare("LinearAttentionGate", operands, 100 * tolerance, outputs=2, form=form)


EXPERTS, HIDDEN, INNER = 5, 24, 16


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(
    ("activation", "third", "turned", "attributes"),
    [
        ("silu", True, False, {"k": 2, "normalize_routing_weights": 1}),
        ("gelu", False, True, {"k": 3}),
        ("relu", False, False, {"k": 2, "use_sparse_mixer": 1}),
        ("swiglu", False, False, {"k": 2, "swiglu_fusion": 1, "swiglu_limit": 0.5, "activation_alpha": 1.7}),
        ("swiglu", True, False, {"k": 1, "activation_beta": 1.0}),
        ("swiglu", False, True, {"k": 5, "swiglu_fusion": 2, "swiglu_limit": 0.5, "swiglu_limit_after_activation": 1}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_mixtures(
    activation: str, third: bool, turned: bool, attributes: dict[str, Any], dtype: Any, form: str
) -> None:
    fused = 2 if activation == "swiglu" and not third else 1
    shapes = (fused * INNER, HIDDEN), (HIDDEN, INNER), (INNER, HIDDEN)
    weights = [
        (normal(EXPERTS, *(s[::-1] if turned else s), seed=n) * s[1] ** -0.5).astype(dtype)
        for n, s in enumerate(shapes)
    ]
    biases = [normal(EXPERTS, s[0], dtype=dtype, seed=n) for n, s in enumerate(shapes)]
    operands: Operands = [normal(2, 9, HIDDEN, dtype=dtype), normal(18, EXPERTS, dtype=dtype)]
    for n in range(3 if third else 2):
        operands += [weights[n], biases[n]]
    compare(
        "MoE",
        operands,
        64 * (EPS if dtype == np.float32 else HALF),
        form=form,
        activation_type=activation,
        **attributes,
    )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    ("block", "zeros", "form", "dtype", "weighted"),
    [
        (0, True, "register", np.float32, True),
        (16, True, "register", np.float32, False),
        (0, False, "register", np.float16, False),
        (16, False, "register", np.float16, True),
        (16, True, "local", np.float32, True),
    ],
)
def test_mixtures_of_few_bits(bits: int, block: int, zeros: bool, form: str, dtype: Any, weighted: bool) -> None:
    rng, per, hidden = np.random.default_rng(bits), 8 // bits, 2 * block or HIDDEN
    operands: list[Any] = [normal(17, hidden, dtype=dtype), normal(17, EXPERTS, dtype=dtype), *[None] * 13]
    for n, (rows, depth) in enumerate(((2 * INNER, hidden), (hidden, INNER))):
        blocks = depth // block if block else 1
        operands[2 + 3 * n] = rng.integers(0, 256, (EXPERTS, rows, depth // per), np.uint8)
        operands[3 + 3 * n] = rng.random((EXPERTS, rows, *([blocks] if block else [])), np.float32) * 2.0**-bits
        if zeros:
            packed = (rows, -(-blocks // per)) if block else (-(-rows // per),)
            operands[11 + n] = rng.integers(0, 256, (EXPERTS, *packed), np.uint8)
    operands[14] = rng.random((17, EXPERTS), np.float32).astype(dtype) if weighted else None
    while operands[-1] is None:
        operands.pop()
    given: dict[str, Any] = {"block_size": block} if block else {}
    # Sums of up to 32 products, then of 16, of numbers up to ten.
    compare(
        "QMoE",
        operands,
        1e4 * EPS,
        form=form,
        k=2,
        expert_weight_bits=bits,
        activation_type="swiglu",
        swiglu_fusion=1,
        **given,
    )


def test_more_experts_than_there_are() -> None:
    operands: Operands = [normal(3, HIDDEN), normal(3, 2), normal(2, INNER, HIDDEN), None, normal(2, HIDDEN, INNER)]
    session = ort.InferenceSession(model("MoE", operands, 1, MS, {"k": 3}, 21), providers=[PROVIDER])
    with pytest.raises(InvalidArgument, match="do not fit"):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(("last", "skip"), [(1, None), (0, None), (1, (2, 3, 4, 12)), (0, (2, 12)), (1, (2, 1, 1, 12))])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_groups_of_channels(last: int, skip: tuple[int, ...] | None, dtype: Any, form: str) -> None:
    x = normal(*((2, 3, 4, 12) if last else (2, 12, 3, 4)), dtype=dtype)
    operands: Operands = [x, normal(12), normal(12, seed=1)]
    given: dict[str, Any] = {"groups": 3, "channels_last": last, "activation": int(skip is None)}
    tolerance = 32 * EPS if dtype == np.float32 else 8 * HALF
    if skip is None:
        compare("GroupNorm", operands, tolerance, form=form, **given)
    else:
        operands += [normal(*skip, dtype=dtype), normal(12, dtype=dtype)]
        compare("SkipGroupNorm", operands, tolerance, outputs=2, form=form, **given)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_and_gates(dtype: Any) -> None:
    x, y, bias = (normal(*shape, dtype=dtype) for shape in ((2, 3, 10), (2, 3, 10), (10,)))
    tolerance = 32 * EPS if dtype == np.float32 else 8 * HALF
    compare("BiasAdd", [x, bias, y], tolerance)
    compare("BiasSplitGelu", [x, bias], tolerance)
    compare("SwiGLU", [x], tolerance)
    compare("SwiGLU", [x, y], tolerance, limit=0.5, activation_alpha=1.7, activation_beta=1.0)
    for shape, axis, inner in (((1, 3, 10), 2, 0), ((3, 10), 2, 0), ((2, 3, 10), 1, 1)):
        compare("BiasSoftmax", [x, normal(*shape, dtype=dtype)], tolerance, axis=axis, is_inner_broadcast=inner)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("groups", "few", "best", "k"), [(1, 1, 2, 3), (4, 2, 2, 4), (4, 1, 9, 6), (8, 8, 1, 2), (2, 1, 3, 1)]
)
def test_experts_chosen_by_groups(groups: int, few: int, best: int, k: int, dtype: Any) -> None:
    told = {"n_group": groups, "topk_group": few, "group_topk": best, "top_k": k}
    logits, bias = normal(2, 5, 16, dtype=dtype), 0.3 * normal(16)
    logits[0, 0], logits[0, 1, :9] = 0.5, 1.5  # equal ones, of which the first counts
    compare("MoEGroupRouter", [logits, bias], 16 * EPS, **told)
    bias[[3, 12]] = -np.inf, np.nan
    compare("MoEGroupRouter", [logits, bias], 16 * EPS, router_sentinel=-7.0, **told)


def test_scores_by_which_experts_are_chosen() -> None:
    compare("MoEGroupRouter", [normal(3, 8), normal(8, seed=1)], 4 * EPS, outputs=3, skipped=(0,), top_k=2)


@pytest.mark.parametrize("told", [{"top_k": 9}, {"top_k": 2, "n_group": 3}, {"top_k": 2, "topk_group": 2}])
def test_experts_that_cannot_be_chosen(told: dict[str, int]) -> None:
    operands: Operands = [normal(3, 8), normal(8)]
    session = ort.InferenceSession(model("MoEGroupRouter", operands, 1, MS, told, 21), providers=[PROVIDER])
    with pytest.raises((InvalidArgument, Fail), match="for 8 experts"):
        session.run(None, {"x0": operands[0], "x1": operands[1]})
