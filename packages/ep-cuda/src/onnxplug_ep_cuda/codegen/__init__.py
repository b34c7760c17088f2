"""Kernels written as text (``onnxplug_kernel_text``): chains of element-wise operators, one kernel a shape.

``chains`` says which nodes, ``lower`` turns a region and its shapes into a program, both on any machine; ``region`` runs programs.
"""
