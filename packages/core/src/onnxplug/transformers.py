"""``onnxruntime.transformers``: the code of an installed onnxruntime, run on onnxplug."""

from onnxplug._wheel import adopt

adopt(globals())
