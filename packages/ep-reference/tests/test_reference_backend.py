"""The backend data through the registry: returned and written, in simulated and host memory, in single and double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.runner import Runner
from reference_cases import Case, cases
from reference_values import download, upload
from reference_views import Graph

from onnxplug.contract import Claim, KernelDef, TensorSpec
from onnxplug_ep_reference.kernels import registry
from onnxplug_ep_reference.kernels.limits import refusal
from onnxplug_ep_reference.memory import SimTensor, contents, view
from onnxplug_ep_reference.provider import ReferenceProvider

Make = Callable[..., ReferenceProvider]

CLAIMED = [case for case in cases() if refusal(case.node) is None]
NOT_CLAIMED = {
    "FlexAttention", "Gelu", "GroupNormalization", "HardSwish", "If", "LSTM", "Loop", "LpNormalization", "MaxPool",
    "MeanVarianceNormalization", "Mish", "Scan", "Scatter", "SequenceMap",
}  # fmt: skip
# The expected values hold float32's own error around zero, which float64 arithmetic does not make.
INEXACT_DATA = {"test_dft_inverse", "test_dft_inverse_opset19"}


def kernel_of(provider: ReferenceProvider, case: Case) -> Any:
    found = provider.get_kernel_registry().kernel_for(case.node)
    assert isinstance(found, KernelDef)
    return found.create(case.node)


def check(case: Case, expected: list[Any], given: Any, provider: ReferenceProvider) -> None:
    atol = max(case.atol, 1e-6) if case.name in INEXACT_DATA else case.atol
    given = given if isinstance(given, tuple) else (given,)
    present = [download(provider, g) for g, v in zip(given, case.node.outputs, strict=True) if v is not None]
    Runner.assert_similar_outputs(expected, present, case.rtol, atol)


@pytest.mark.parametrize("case", CLAIMED, ids=str)
def test_case(case: Case, make_provider: Make) -> None:
    """Returned from simulated memory; in float64 written into simulated memory."""
    for operands, expected in case.data:
        provider = make_provider()
        check(case, expected, returned(provider, case, operands), provider)
        written(make_provider(float64="1"), case, operands, expected)


@pytest.mark.parametrize("case", CLAIMED[::5], ids=str)
def test_host_memory(case: Case, make_provider: Make) -> None:
    provider = make_provider(memory="host")
    for operands, expected in case.data:
        check(case, expected, returned(provider, case, operands), provider)


def returned(provider: ReferenceProvider, case: Case, operands: list[Any]) -> Any:
    return kernel_of(provider, case)(*[upload(provider, value) for value in operands])


def written(provider: ReferenceProvider, case: Case, operands: list[Any], expected: list[Any]) -> None:
    """The outputs lie one behind the other in one buffer, as a plan's slab has them."""
    given = iter(expected)
    results = [next(given) if value is not None else None for value in case.node.outputs]
    specs = [spec(value) for value in results]
    into = kernel_of(provider, case).bind([spec(value) for value in operands], specs)
    if any(value is not None and dense is None for value, dense in zip(results, specs, strict=True)):
        assert into is None  # host values cannot be written into a slab
        check(case, expected, returned(provider, case, operands), provider)
        return
    sizes = [dense.nbytes if dense is not None else 0 for dense in specs]
    allocator = provider.create_allocators()[0]
    slab = allocator.allocate(sum(sizes))
    outputs = [
        view(slab, sum(sizes[:i]), dense.dtype, dense.shape) if dense is not None else None
        for i, dense in enumerate(specs)
    ]
    assert into.call(*[upload(provider, value) for value in operands], *outputs) is None
    check(case, expected, tuple(outputs), provider)
    allocator.free(slab)


def spec(value: Any) -> TensorSpec | None:
    dense = isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"
    return TensorSpec(value.dtype, value.shape) if dense else None


def test_only_known_operators_are_declined(provider: ReferenceProvider) -> None:
    kernels = provider.get_kernel_registry()
    declined = set()
    for case in cases():
        [verdict] = provider.get_capability(Graph([case.node]), kernels)
        if not isinstance(verdict, Claim):
            assert verdict.reason
            declined.add(case.node.op_type)
    assert declined - {"ImageDecoder"} == NOT_CLAIMED


def test_inputs_are_never_written(make_provider: Make) -> None:
    provider = make_provider()
    for case in CLAIMED[::7]:
        operands = [upload(provider, value) for value in case.data[0][0]]
        tensors = [value for value in operands if isinstance(value, SimTensor)]
        before = [contents(tensor).tobytes() for tensor in tensors]
        kernel_of(provider, case)(*operands)
        assert [contents(tensor).tobytes() for tensor in tensors] == before, case.name


def test_the_registry_is_made_of_schema_versions() -> None:
    kernels = registry(None, double=False)
    operators = {(definition.domain, definition.op_type) for definition in kernels}
    assert len(operators) > 200
    assert not any(definition.op_type in ("If", "Loop", "Scan", "SequenceMap") for definition in kernels)
