"""The kit's own structures, one module for each domain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from onnxplug_testkit.kernels.own.contrib import contrib_nodes
from onnxplug_testkit.kernels.own.corners import corner_nodes
from onnxplug_testkit.kernels.own.experimental import experimental_nodes
from onnxplug_testkit.kernels.own.experts import expert_nodes
from onnxplug_testkit.kernels.own.given import given_nodes
from onnxplug_testkit.kernels.own.given_attention import given_attention_nodes
from onnxplug_testkit.kernels.own.given_contrib import given_contrib_nodes
from onnxplug_testkit.kernels.own.given_hybrid import given_hybrid_nodes
from onnxplug_testkit.kernels.own.given_ml import given_ml_nodes
from onnxplug_testkit.kernels.own.given_quantized import given_quantized_nodes
from onnxplug_testkit.kernels.own.hybrid import hybrid_nodes
from onnxplug_testkit.kernels.own.large import large_nodes
from onnxplug_testkit.kernels.own.ml import machine_learning_nodes
from onnxplug_testkit.kernels.own.node import OwnNode
from onnxplug_testkit.kernels.own.packed import packed_nodes
from onnxplug_testkit.kernels.own.quantized import quantized_nodes
from onnxplug_testkit.kernels.own.ranks import rank_nodes
from onnxplug_testkit.kernels.own.rare import rare_nodes
from onnxplug_testkit.kernels.own.recurrent import recurrent_nodes
from onnxplug_testkit.kernels.own.standard import standard_nodes
from onnxplug_testkit.kernels.own.uneven import uneven_nodes

__all__ = ["OwnNode", "own_nodes"]


def own_nodes() -> Iterator[OwnNode]:
    """All of them, each with a name of its own among those of its operator."""
    named: dict[tuple[str, str], int] = {}
    for node in (
        *standard_nodes(),
        *uneven_nodes(),
        *given_nodes(),
        *recurrent_nodes(),
        *rank_nodes(),
        *large_nodes(),
        *corner_nodes(),
        *rare_nodes(),
        *machine_learning_nodes(),
        *given_ml_nodes(),
        *contrib_nodes(),
        *quantized_nodes(),
        *given_contrib_nodes(),
        *given_attention_nodes(),
        *given_quantized_nodes(),
        *given_hybrid_nodes(),
        *expert_nodes(),
        *hybrid_nodes(),
        *packed_nodes(),
        *experimental_nodes(),
    ):
        number = named[node.domain, node.name] = named.get((node.domain, node.name), 0) + 1
        yield node if number == 1 else dataclasses.replace(node, name=f"{node.name}_{number}")
