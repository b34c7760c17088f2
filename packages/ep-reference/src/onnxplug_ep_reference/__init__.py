"""The reference execution provider: onnx.reference's operators, a float64 mode, and a simulated separate memory space."""
