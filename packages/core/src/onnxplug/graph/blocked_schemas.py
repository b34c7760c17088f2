"""Schemas of onnxruntime's operators on blocked channels (see ``onnxplug.graph.blocked``), which onnx does not have."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from onnxplug._onnx import defer
from onnxplug.graph.schemas import NCHWC

_CHANNELS_LAST = {"channels_last": "INT"}
_WINDOW = {"auto_pad": "STRING", "dilations": "INTS", "kernel_shape": "INTS", "pads": "INTS", "strides": "INTS"}
_POOL = {**_WINDOW, "ceil_mode": "INT"}
_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "AveragePool": {**_POOL, "count_include_pad": "INT"},
    "Conv": {**_WINDOW, "activation": "STRING", "activation_params": "FLOATS", "group": "INT"},
    "GlobalAveragePool": {},
    "GlobalMaxPool": {},
    "MaxPool": {**_POOL, "storage_order": "INT"},
    "ReorderInput": _CHANNELS_LAST,
    "ReorderOutput": {**_CHANNELS_LAST, "channels": "INT"},
    "Upsample": {"coordinate_transformation_mode": "STRING", "mode": "STRING", "scales": "INTS"},
}
"""Operator -> attribute -> type. All may be left out here; what the ordinary operator cannot do without is its schema's matter."""


@functools.cache
def blocked_schemas() -> Mapping[str, Any]:
    """OpSchemas by operator: all that onnxruntime has."""
    defer()
    from onnx.defs import OpSchema

    single, optional = OpSchema.FormalParameterOption.Single, OpSchema.FormalParameterOption.Optional

    def formal(name: str, option: Any) -> Any:
        return OpSchema.FormalParameter(name, "tensor(float)", param_option=option)

    x, y = formal("X", single), formal("Y", single)
    of_conv = [x, formal("W", single), formal("B", optional), formal("Sum", optional)]
    return {
        op_type: OpSchema(
            op_type,
            NCHWC,
            1,
            inputs=of_conv if op_type == "Conv" else [x],
            outputs=[y],
            attributes=[
                OpSchema.Attribute(name, getattr(OpSchema.AttrType, kind), required=False)
                for name, kind in attributes.items()
            ],
        )
        for op_type, attributes in _ATTRIBUTES.items()
    }
