"""Executing plans.

``GraphRunner`` runs a placed graph: ``Plans`` gives the plan for the shapes that came, a ``Frame`` binds the plan to memory (``Binder``
makes calls of its steps), and a run is these calls, one after the other. ``control``, ``loop`` and ``scan`` run nested graphs in the same
way; one run of a loop's body is a *trip*. ``places`` says which results may be written where the caller has bound them.

Where the work between calls would take longer than the calls, there are shorter ways:

* a *stride* (``strides``): the graph is one small region, whose native function is called with the operands, without a frame;
* a *lane* (``lane``): all trips of a loop whose shapes stay the same run in one frame, and results are written where the loop wants them;
* a *walk* (``walks``): a loop along sequences does the reading and appending itself, so that tensors are all that its body sees.
"""

from onnxplug.run.executor import GraphRunner
from onnxplug.run.memory import DeviceArray, DeviceMemory, Memories
from onnxplug.run.places import Places, places_for
from onnxplug.run.runtime import Runtime

__all__ = ["DeviceArray", "DeviceMemory", "GraphRunner", "Memories", "Places", "Runtime", "places_for"]
