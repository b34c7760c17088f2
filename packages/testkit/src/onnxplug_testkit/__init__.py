"""The conformance kit: decides whether an execution provider keeps onnxplug's contract.

A pytest plugin, inert unless ``--ep`` is given: ``pytest --pyargs onnxplug_testkit --ep opencl --level kernels``.
"""

__version__ = "0.1.0"
