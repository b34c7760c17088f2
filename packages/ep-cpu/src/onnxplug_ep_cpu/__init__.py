"""``CPUExecutionProvider`` of onnxplug: the operators of ``onnxplug_kernels`` with NumPy."""
