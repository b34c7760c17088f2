"""The providers that onnxruntime has names for, as onnxplug offers them: how each is had, and where it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxplug_ep_onnxruntime import options as o
from onnxplug_ep_onnxruntime.library import CPU

OWN = "OnnxRuntimeExecutionProvider"
"""onnxruntime's CPU provider, whose own name is that of onnxplug's."""


@dataclass(frozen=True)
class Bridged:
    """One provider. ``fix``: what brings it. ``system``: the one it exists on (as ``sys.platform`` begins), if there is one. ``files``: on
    Linux one of these is there where its hardware is. ``plugin``: the module of a package with it as a plugin library. ``keys``: session
    config entries with this prefix are the provider's."""

    name: str
    options: type[o.BridgeOptions]
    vendor: str
    device: str
    fix: str
    system: str = ""
    files: Sequence[str] = ()
    plugin: str = ""
    keys: str = ""
    concurrent: bool = True

    @property
    def ep(self) -> str:
        """Its name in onnxruntime."""
        return CPU if self.name == OWN else self.name

    @property
    def short(self) -> str:
        """What regions are called after."""
        return self.name.removesuffix("ExecutionProvider").lower()


_NVIDIA = ("/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-gpu")
_WEBGPU = "onnxruntime-ep-webgpu"
_RTX = "onnxruntime-ep-nv-tensorrt-rtx"


def _built(flag: str) -> str:
    return f"build onnxruntime with {flag} (onnxruntime.ai/docs/build/eps.html) and install its wheel"


def _wheel(name: str) -> str:
    return f"pip uninstall onnxruntime; pip install {name}"


ALL = (
    Bridged(OWN, o.OnnxRuntimeOptions, "Microsoft", "CPU", "pip install onnxruntime"),
    Bridged("ACLExecutionProvider", o.AclOptions, "Arm", "CPU", _built("--use_acl")),
    Bridged(
        "CANNExecutionProvider", o.CannOptions, "Huawei", "NPU", _wheel("onnxruntime-cann"), "linux",
        ("/dev/davinci_manager",),
    ),
    Bridged("CoreMLExecutionProvider", o.CoreMLOptions, "Apple", "NPU", "pip install onnxruntime", "darwin"),
    Bridged(
        "DmlExecutionProvider", o.DmlOptions, "Microsoft", "GPU", _wheel("onnxruntime-directml"), "win32",
        keys="ep.dml.", concurrent=False,
    ),
    Bridged("DnnlExecutionProvider", o.DnnlOptions, "Intel", "CPU", _built("--use_dnnl")),
    Bridged(
        "MIGraphXExecutionProvider", o.MIGraphXOptions, "AMD", "GPU", _wheel("onnxruntime-migraphx"), "linux", ("/dev/kfd",)
    ),
    Bridged("NnapiExecutionProvider", o.PlainOptions, "Google", "NPU", _built("--use_nnapi"), "android", keys="ep.nnapi."),
    Bridged(
        "NvTensorRTRTXExecutionProvider", o.NvTensorRTRTXOptions, "NVIDIA", "GPU", f"pip install {_RTX}",
        files=_NVIDIA, plugin="onnxruntime_ep_nv_tensorrt_rtx", keys="ep.nvtensorrtrtxexecutionprovider.",
    ),
    Bridged(
        "QNNExecutionProvider", o.QnnOptions, "Qualcomm", "NPU", "pip install onnxruntime-qnn",
        plugin="onnxruntime_qnn", keys="ep.qnn.",
    ),
    Bridged("RknpuExecutionProvider", o.PlainOptions, "Rockchip", "NPU", _built("--use_rknpu"), "linux"),
    Bridged("TensorrtExecutionProvider", o.TensorrtOptions, "NVIDIA", "GPU", _wheel("onnxruntime-gpu"), files=_NVIDIA),
    Bridged("VSINPUExecutionProvider", o.PlainOptions, "VeriSilicon", "NPU", _built("--use_vsinpu"), "linux"),
    Bridged(
        "VitisAIExecutionProvider", o.VitisAIOptions, "AMD", "NPU",
        "install AMD's Ryzen AI software, which brings an onnxruntime of its own",
    ),
    Bridged(
        "WebGpuExecutionProvider", o.WebGpuOptions, "Microsoft", "GPU", f"pip install {_WEBGPU}",
        plugin="onnxruntime_ep_webgpu", keys="ep.webgpuexecutionprovider.",
    ),
    Bridged("XnnpackExecutionProvider", o.XnnpackOptions, "Google", "CPU", _built("--use_xnnpack")),
)  # fmt: skip
