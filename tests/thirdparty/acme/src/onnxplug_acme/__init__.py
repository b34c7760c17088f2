"""A provider as a third party writes it: knows onnxplug.contract and nothing else of onnxplug."""
