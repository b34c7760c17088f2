"""MoEGroupRouter of domain ``com.microsoft``: the scores by which DeepSeek-V3's mixtures choose experts."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, widen

MS = "com.microsoft"
LEAST = 1e-20
"""Scores count as at least this when their logarithm is taken."""


@op("MoEGroupRouter", 1, domain=MS)
def moe_group_router(
    xp: Any,
    logits: Any,
    expert_bias: Any,
    projection_weight: Any = None,
    *,
    top_k: int,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = -10000.0,
    topk_group: int = 1,
    n_outputs: int = 1,
) -> tuple[Any, ...]:
    """log(sigmoid) of logits (..., experts) at the ``top_k`` experts that are best with ``expert_bias``, ``router_sentinel``
    elsewhere; (tokens, experts). Experts are those of the ``topk_group`` groups whose best ``group_topk`` have the highest sum.

    Where the second and third output are asked for, these are all sigmoids with and without the bias, in float32; then
    ``projection_weight`` (experts, width) may make the logits of what is given, (tokens, width).
    """
    experts = expert_bias.shape[0]
    full = n_outputs > 1
    if full and (n_group != 1 or topk_group != 1):
        raise ValueError("selection_scores and router_weights need n_group and topk_group 1")
    if projection_weight is not None and not full:
        raise ValueError("projection_weight is for selection_scores and router_weights")
    size = experts // n_group if n_group > 0 else 0
    if (
        min(top_k, group_topk, topk_group, size) < 1
        or size * n_group != experts
        or topk_group > n_group
        or top_k > experts
    ):
        raise ValueError(
            f"top_k {top_k}, n_group {n_group}, topk_group {topk_group} and group_topk {group_topk} do not go with {experts} experts"
        )
    rows = widen(xp, logits)
    if projection_weight is not None:
        rows = xp.matmul(rows, xp.matrix_transpose(widen(xp, projection_weight)))
    if rows.shape[-1] != experts:
        raise ValueError(f"{rows.shape[-1]} logits a token for {experts} experts")
    weights = sigmoid(xp, xp.reshape(rows, (-1, experts)))
    scores = weights + expert_bias
    if full:
        return None, scores, weights
    eligible = xp.ones_like(scores, dtype=xp.bool)
    if topk_group < n_group:
        rising = xp.sort(xp.reshape(scores, (-1, n_group, size)), axis=2)
        among = _best(xp, xp.sum(rising[:, :, max(0, size - group_topk) :], axis=2), topk_group)
        eligible = xp.repeat(among, size, axis=1)
    left = xp.where(eligible, scores, xp.asarray(-xp.inf, dtype=scores.dtype))
    chosen = _best(xp, left, min(top_k, topk_group * size)) & eligible
    kept = xp.log(xp.maximum(weights, xp.asarray(LEAST, dtype=weights.dtype)))
    return (narrow(xp, xp.where(chosen, kept, xp.asarray(router_sentinel, dtype=kept.dtype)), logits.dtype),)


def _best(xp: Any, scores: Any, count: int) -> Any:
    """Which are the ``count`` highest of each row, the first of equal ones."""
    order = xp.argsort(-scores, axis=1, stable=True)
    ranks = xp.argsort(order, axis=1, stable=True)
    return ranks < count
