"""Machine code for regions of a graph: lowering to kernels over offsets, LLVM IR for each kernel, one native call per run.

In the order data flows: ``capability`` (which nodes) -> ``region`` (compile, bind) -> ``lower`` (nodes to kernel calls) ->
``program`` (buffers, offsets, the image) -> ``kernels`` + ``emit`` (LLVM IR) -> ``compiler`` (objects, disk cache) ->
``pool`` (threads and driver).
"""
