"""Host values into a provider's memory and back, by its own data transfer."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract import HOST
from onnxplug_ep_reference.memory import SimTensor
from onnxplug_ep_reference.provider import ReferenceProvider


def upload(provider: ReferenceProvider, value: Any) -> Any:
    """A tensor of numbers goes into the provider's memory, all else stays."""
    if provider.allocator is None or not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return value
    tensor = provider.allocator.tensor(value.dtype, value.shape)
    transfer = provider.get_data_transfer()
    assert transfer is not None and transfer.can_copy(HOST, tensor.device)
    transfer.copy(value, tensor)
    return tensor


def download(provider: ReferenceProvider, value: Any) -> Any:
    """The host value of what a kernel gave."""
    if not isinstance(value, SimTensor):
        return value
    array = np.empty(value.shape, value.dtype)
    transfer = provider.get_data_transfer()
    assert transfer is not None
    transfer.copy(value, array)
    return array
