"""Source text of device kernels in a dialect that OpenCL C and CUDA C++ share through a prelude of macros.

``opencl.PRELUDE`` or ``cuda.PRELUDE`` goes before any number of kernels in one program. A generator takes element types ("f32", "i64",
"b8", ...; ``types``) and parameters that change the text, and returns the text of one kernel under the name it was given; everything else
(extents, strides) is an argument of the kernel. Arguments come in this order, for every generator:

1. the tensors, inputs before outputs, each as ``TENSOR(type, name)``: a pointer in CUDA, a buffer and an int64 element offset in OpenCL;
2. the scalars, in the order the generator's docstring gives, of the types it gives.

Nothing here imports a device library, the generators not even an array library; ``nodes`` leads from nodes of a graph to them.
"""
