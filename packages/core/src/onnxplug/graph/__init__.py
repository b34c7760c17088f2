"""The model's graph: building, schemas, type and shape inference, function inlining, export."""

from typing import TYPE_CHECKING

from onnxplug._lazy import lazy_names

if TYPE_CHECKING:
    from onnxplug.graph.build import build_graph as build_graph
    from onnxplug.graph.ir import Graph as Graph
    from onnxplug.graph.ir import Node as Node
    from onnxplug.graph.schemas import CONTROL_FLOW as CONTROL_FLOW
    from onnxplug.graph.schemas import Schemas as Schemas
    from onnxplug.graph.value import Value as Value

__getattr__, __dir__, __all__ = lazy_names(
    globals(),
    {
        "onnxplug.graph.build": ("build_graph",),
        "onnxplug.graph.ir": ("Graph", "Node"),
        "onnxplug.graph.schemas": ("CONTROL_FLOW", "Schemas"),
        "onnxplug.graph.value": ("Value",),
    },
)
