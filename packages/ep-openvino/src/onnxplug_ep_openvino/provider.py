"""The provider of one session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxplug.contract import (
    Claim,
    CompiledRegion,
    Decline,
    ExecutionProvider,
    GraphView,
    Inline,
    KernelLookup,
    KernelRegistry,
    Region,
    SessionContext,
)
from onnxplug_ep_openvino.capability import capability
from onnxplug_ep_openvino.compiler import Compiler
from onnxplug_ep_openvino.errors import plain
from onnxplug_ep_openvino.options import OpenVINOOptions
from onnxplug_ep_openvino.region import Nothing, OpenVINORegion
from onnxplug_ep_openvino.registry import registry
from onnxplug_ep_openvino.settings import properties


class OpenVINOProvider(ExecutionProvider):
    """Claims regions, has OpenVINO compile them, and gives it the host's memory to read and write."""

    def __init__(self, options: OpenVINOOptions, context: SessionContext) -> None:
        self._exact = options.exact
        self._compiler = Compiler(options.device_type, properties(options, context), options.cache_dir)

    def get_capability(self, graph: GraphView, kernels: KernelLookup) -> Iterable[Claim | Decline | Inline]:
        return capability(graph, kernels, self._exact)

    def get_kernel_registry(self) -> KernelRegistry:
        return registry(self._exact)

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return [self._compiled(region) for region in regions]

    def load_region(self, blob: bytes) -> CompiledRegion:
        try:
            return OpenVINORegion(self._compiler.load(blob), self._compiler)
        except Exception as error:
            raise plain(error) from error

    def _compiled(self, region: Region) -> CompiledRegion:
        if not region.outputs:
            return Nothing()
        try:
            compiled = self._compiler.compiled(region)
        except Exception as error:
            raise plain(error) from error
        made = OpenVINORegion(compiled, self._compiler, region)
        made.packed = tuple(
            {v.name for node in region.graph.nodes for v in node.inputs if v is not None and v.is_constant}
        )
        return made
