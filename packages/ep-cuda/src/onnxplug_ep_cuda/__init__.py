"""``CUDAExecutionProvider``: NVIDIA GPUs through CuPy. Importing this package touches neither CuPy nor the driver."""
