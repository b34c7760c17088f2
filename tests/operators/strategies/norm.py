"""Normalisations, dropout and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy


@strategy("BatchNormalization")
def batch_normalization(d: Draw) -> Case:
    shape = (d.integer(1, 3), d.integer(1, 3), *d.shape(0 if d.version >= 9 else 1, 3, sizes=(3, 2, 1)))
    scales = "T1" if d.version >= 15 else "T"
    stats = {14: "U", 15: "T2"}.get(d.version, "T")
    attributes = d.maybe(epsilon=d.pick(1e-5, 1e-2))
    parameters = [d.tensor(shape[1:2], d.element(scales)) for _ in range(2)]
    mean, variance = d.tensor(shape[1:2], d.element(stats)), d.tensor(shape[1:2], d.element(stats), 0.1, 4)
    outputs: int = 1
    if d.version in (1, 6):
        attributes["is_test"] = 1
    if d.version in (1, 6, 7):
        attributes |= d.maybe(spatial=1)
    if d.version == 1:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    if d.version >= 14 and (d.flag() or (d.cell.parameter in ("U", "T2") and d.flag())):
        attributes |= {"training_mode": 1, "momentum": 0.7}
        outputs = 3
    elif d.flag():
        attributes["momentum"] = 0.7
    return Case([d.tensor(shape), *parameters, mean, variance], attributes, outputs)


@strategy("InstanceNormalization")
def instance_normalization(d: Draw) -> Case:
    shape = (d.integer(1, 2), d.integer(1, 3), *d.shape(1, 3, sizes=(3, 2, 4)))
    attributes = d.maybe(epsilon=d.pick(1e-5, 1e-2))
    if d.version == 1 and d.flag():
        attributes["consumed_inputs"] = [0]
    return Case([d.tensor(shape), d.tensor(shape[1:2]), d.tensor(shape[1:2])], attributes)


@strategy("LayerNormalization")
def layer_normalization(d: Draw) -> Case:
    shape = d.shape(1, 4, sizes=(3, 2, 4, 5))
    axis = d.axis(len(shape))
    inner = shape[axis:]
    bias = d.optional(lambda: d.tensor(inner))
    stash = ELEMENT_CODES[d.element("U", ("float",))]
    attributes = {**d.maybe(epsilon=d.pick(1e-5, 1e-2)), **({"stash_type": stash} if stash != 1 or d.flag() else {})}
    attributes |= {"axis": axis} if axis != -1 or d.flag() else {}
    return Case([d.tensor(shape), d.tensor(inner), bias], attributes, d.pick(1, 3, 2))


@strategy("RMSNormalization")
def rms_normalization(d: Draw) -> Case:
    shape = d.shape(1, 4, sizes=(3, 2, 4, 5))
    axis = d.axis(len(shape))
    inner = shape[axis:]
    attributes = d.maybe(epsilon=d.pick(1e-5, 1e-2), stash_type=1)
    attributes |= {"axis": axis} if axis != -1 or d.flag() else {}
    d.bind("V", d.element())  # onnx's own inference makes the output a T
    return Case([d.tensor(shape), d.tensor(d.broadcastable(inner))], attributes)


@strategy("GroupNormalization")
def group_normalization(d: Draw) -> Case:
    groups = d.pick(2, 1, 3)
    channels = groups * d.integer(1, 3)
    shape = (d.integer(1, 2), channels, *d.shape(1, 3, sizes=(3, 2, 4)))
    size = groups if d.version == 18 else channels
    attributes = {"num_groups": groups, **d.maybe(epsilon=d.pick(1e-5, 1e-2))}
    if d.version >= 21:
        attributes |= d.maybe(stash_type=1)
    return Case([d.tensor(shape), d.tensor((size,)), d.tensor((size,))], attributes)


@strategy("LRN")
def lrn(d: Draw) -> Case:
    shape = (d.integer(1, 2), d.integer(1, 6), *(d.integer(1, 3) for _ in range(d.pick(2, 1, 3))))
    return Case([d.tensor(shape)], {"size": d.pick(3, 1, 2, 5), **d.maybe(alpha=0.1, beta=d.pick(0.75, 1.5), bias=2.0)})


@strategy("Dropout")
def dropout(d: Draw) -> Case:
    x = d.tensor(d.shape())
    mask = d.pick(1, 2)
    if d.version < 12:
        attributes: dict[str, Any] = d.maybe(ratio=0.3)
        if d.version <= 6:
            attributes["is_test"] = 1
        if d.version == 1 and d.flag():
            attributes["consumed_inputs"] = [0]
        if d.version in (1, 6) and mask == 2:
            mask = 1  # the mask of inference is not specified
        if d.version in (7,):
            mask = 1
        if d.cell.parameter == "T1":
            mask = 2
        return Case([x], attributes, mask)
    if d.cell.parameter == "T2":
        mask = 2
    ratio = (
        np.array(d.pick(0.3, 0.0)).astype(numpy_dtype(d.element("T1")))
        if d.cell.parameter == "T1" or d.flag()
        else None
    )
    training = np.array(False) if d.flag() else None
    if ratio is not None and float(ratio) == 0 and d.flag():
        training = np.array(True)
    return Case([x, ratio, training], d.maybe(seed=7), mask)


@strategy("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draw) -> Case:
    n, c = d.integer(1, 3), d.integer(2, 4)
    outer = d.shape(0, 2, sizes=(3, 2, 1))
    ignored = d.pick(None, 1, -1) if d.flag() else None
    labels = d.rng.integers(0, c, (n, *outer))
    if ignored is not None:
        labels[d.rng.random(labels.shape) < 0.3] = ignored
    weight = d.optional(lambda: d.tensor((c,), None, 0.5, 2))
    attributes = d.maybe(reduction=d.pick("mean", "sum", "none"))
    if ignored is not None:
        attributes["ignore_index"] = ignored
        if (labels == ignored).all():
            labels[...] = 0 if ignored != 0 else 1
            labels = np.where(labels == ignored, (ignored + 1) % c, labels)
    outputs = d.pick(1, 2) if d.op_type == "SoftmaxCrossEntropyLoss" else 1
    return Case([d.tensor((n, c, *outer)), labels.astype(numpy_dtype(d.element("Tind"))), weight], attributes, outputs)
