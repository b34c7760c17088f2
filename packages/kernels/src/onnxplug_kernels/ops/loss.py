"""Classification losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.arithmetic import in_float32
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.softmax import log_softmax
from onnxplug_kernels.refusals import Refusal, braced, watched


@op("NegativeLogLikelihoodLoss", 12, 22)
@in_float32
def negative_log_likelihood_loss(
    xp: Any,
    log_probabilities: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss -p[target] of (N, C, ...) log-probabilities for (N, ...) classes, weighted by class.

    ``reduction`` is "none", "sum" or "mean", which divides by the sum of the weights. Ignored targets have weight 0.
    """
    classes = log_probabilities.shape[1]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise Refusal(f"weight has shape {braced(weight.shape)}, there are {classes} classes")
    weights = None
    if ignore_index is not None:
        counted = target != ignore_index
        target = xp.where(counted, target, 0)
        weights = xp.astype(counted, log_probabilities.dtype)
    watched(xp, target, -classes, classes)
    chosen = xp.take_along_axis(log_probabilities, xp.expand_dims(target, axis=1), axis=1)
    loss = -xp.squeeze(chosen, axis=1)
    if weight is not None:
        of_class = xp.reshape(xp.take(weight, xp.reshape(target, (-1,)), axis=0), target.shape)
        weights = of_class if weights is None else weights * of_class
    if weights is not None:
        # where: the ignored may hold an infinity, which times 0 is not a number.
        loss = xp.where(weights == 0, 0.0, loss * weights)
    if reduction == "none":
        return loss
    total = xp.sum(loss)
    if reduction == "sum":
        return total
    return total / (target.size if weights is None else xp.sum(weights))


@op("SoftmaxCrossEntropyLoss", 12, 13)
@in_float32
def softmax_cross_entropy_loss(
    xp: Any,
    scores: Any,
    labels: Any,
    weights: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Any, Any]:
    """The negative log-likelihood loss of the softmax of (N, C, ...) scores, and the logarithm of that softmax."""
    log_probabilities = log_softmax(xp, scores, axis=1)
    loss = negative_log_likelihood_loss(
        xp, log_probabilities, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss, log_probabilities
