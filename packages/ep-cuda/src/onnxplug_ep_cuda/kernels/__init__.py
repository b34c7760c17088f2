"""Kernels that write into outputs they are given, one operator family to a file.

A form has the fixed shape ``form(inputs, outputs, **attributes) -> Into | None``, with one ``TensorSpec`` for each operand (None for an
omitted one). It runs when a plan is made, on any machine; what it returns runs on the device. None leaves the node to the function that
returns fresh arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxplug.contract import Into

Form = Callable[..., Into | None]


def forms(*, tf32: bool) -> Mapping[tuple[str, str], Form]:
    """(domain, operator) -> its writing form. ``tf32``: products of float32 may be computed in TF32."""
    from onnxplug_ep_cuda.kernels import elementwise, move, products

    return {**elementwise.forms(), **move.forms(), **products.forms(tf32)}
