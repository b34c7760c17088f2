"""A region as OpenVINO's model, read from ONNX in memory."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

from onnxplug.contract import Region, ValueView
from onnxplug.contract.model import onnx_model
from onnxplug_ep_openvino.device import core, library

NEWEST = {"": 21}
"""Opset that OpenVINO knows whole; a later one is imported where a node is of it."""


def read(region: Region) -> tuple[Any, list[int]]:
    """The region as an ``openvino.Model``, and which of the region's inputs are the model's, which has those only that matter.

    Large weights are not serialized: they are read as inputs, which then give way to constants. Raises what OpenVINO does.
    """
    openvino = library()

    nodes = region.graph.nodes
    proto, apart = onnx_model(region.graph, nodes, region.inputs, region.outputs, NEWEST, apart_as_inputs=True)
    model = core().read_model(io.BytesIO(proto.SerializeToString()))
    places = {value.name: place for place, value in enumerate(region.inputs)}
    for parameter in model.get_parameters():
        if (name := _named(parameter, apart)) is None:
            continue
        constant = openvino.op.Constant(_array(apart[name]), shared_memory=False)
        for reader in parameter.output(0).get_target_inputs():
            reader.replace_source_output(constant.output(0))
        model.remove_parameter(parameter)
        apart[name].release()
    model.validate_nodes_and_infer_types()
    names = [_named(parameter, places) for parameter in model.get_parameters()]
    return model, [places[name] for name in names if name is not None]


def _named(parameter: Any, among: Collection[str]) -> str | None:
    """The one of these names that a parameter has: one whose value is a result too has that name besides."""
    return next((name for name in parameter.output(0).get_names() if name in among), None)


def _array(value: ValueView) -> Any:
    array = value.view()
    assert array is not None
    return array
