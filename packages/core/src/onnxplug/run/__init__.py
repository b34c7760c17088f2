"""Executing plans."""

from onnxplug.run.executor import GraphRunner
from onnxplug.run.memory import DeviceArray, DeviceMemory, Memories, device_memory
from onnxplug.run.runtime import Runtime

__all__ = ["DeviceArray", "DeviceMemory", "GraphRunner", "Memories", "Runtime", "device_memory"]
