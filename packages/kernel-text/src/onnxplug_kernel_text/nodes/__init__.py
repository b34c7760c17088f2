"""From nodes of a graph to what the generators take: what providers of several device libraries share. Needs ``onnxplug.contract``."""
