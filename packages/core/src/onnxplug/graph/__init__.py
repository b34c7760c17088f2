"""The model's graph: building, schemas, type and shape inference, function inlining, export."""

from onnxplug.graph.build import build_graph
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.schemas import CONTROL_FLOW, Schemas

__all__ = ["CONTROL_FLOW", "Graph", "Node", "Schemas", "Value", "build_graph"]
