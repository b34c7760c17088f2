"""The shapes of a node's results where inference does not say: operators of version 1 have none, and devices that work with known shapes
only decline what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from onnxplug_testkit.kernels.oracle import oracles
from onnxplug_testkit.kernels.retarget import Shapes, Target
from onnxplug_testkit.kernels.values import fresh
from onnxplug_testkit.models import graph_of

DRAWS = 3
"""Results whose shapes the values decide differ among so many, all but surely."""


def shapes_of_results(target: Target, made: onnx.ModelProto, judged: str) -> Shapes:
    """Shapes to declare for the outputs of ``made``, the target's model: those which an oracle's results have whatever is fed. None of
    them where inference knows all, where there is no oracle, or where results are no tensors."""
    outputs = graph_of(made, [] if target.schema is None else [target.schema]).outputs
    if all(value.shape is not None and all(isinstance(side, int) for side in value.shape) for value in outputs):
        return ()
    rng = np.random.default_rng(0)
    fed = {value.name for value in made.graph.input}
    for oracle in oracles(made, judged):
        try:
            found = [
                [getattr(r, "shape", None) for r in oracle(oracle.admit(_feeds(rng, target, fed)))]
                for _ in range(DRAWS)
            ]
        except Exception:  # onnxruntime's classes are its own; a refusal of any kind sends us to the next
            continue
        same = [each[0] if all(shape == each[0] for shape in each) else None for each in zip(*found, strict=True)]
        return same if any(shape is not None for shape in same) else ()
    return ()


def _feeds(rng: np.random.Generator, target: Target, fed: set[str]) -> dict[str, Any]:
    operands = {f"x{i}": o for i, o in enumerate(target.inputs) if f"x{i}" in fed}
    return {name: fresh(rng, target.key[1], o.formal, o.like, o.type) for name, o in operands.items()}
