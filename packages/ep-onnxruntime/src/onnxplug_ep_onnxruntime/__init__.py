"""The execution providers of an installed onnxruntime as providers of onnxplug."""
