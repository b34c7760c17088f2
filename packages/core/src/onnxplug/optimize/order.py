"""The order of passes, and from which level on each is run.

Levels are onnxruntime's: basic passes keep every value that remains; extended ones rewrite arithmetic across nodes.
None touches what a provider may want whole: QuantizeLinear/DequantizeLinear pairs, and function-bodied operators (they
are offered first, inlined later).
"""

from __future__ import annotations

from onnxplug.optimize.apart import dequantize_apart
from onnxplug.optimize.collected import collect_sequences
from onnxplug.optimize.common import merge_common
from onnxplug.optimize.counted import count_trips
from onnxplug.optimize.dequantize import dequantize_constants
from onnxplug.optimize.fold import fold_constants
from onnxplug.optimize.fuse import fold_affine
from onnxplug.optimize.invariant import know_conditions, lift_invariants
from onnxplug.optimize.pad import fold_padding
from onnxplug.optimize.passes import BASIC, EXTENDED, Pass
from onnxplug.optimize.prune import drop_dead, drop_identities, inline_constant_branches
from onnxplug.optimize.select import select_branches
from onnxplug.optimize.sequences import resolve_sequences
from onnxplug.optimize.sink import sink_shapes
from onnxplug.optimize.slices import size_slices
from onnxplug.optimize.turn import turn_constants

PASSES: tuple[tuple[str, int, Pass], ...] = (
    ("EliminateDeadEnds", BASIC, drop_dead),
    ("ConstantFolding", BASIC, fold_constants),
    ("ConstantDequantization", BASIC, dequantize_constants),
    ("TransposedDequantization", BASIC, turn_constants),
    ("ProductDequantization", BASIC, dequantize_apart),
    ("SequenceResolution", BASIC, resolve_sequences),
    ("ConstantBranches", BASIC, inline_constant_branches),
    ("EliminateIdentity", BASIC, drop_identities),
    ("LoopConditions", BASIC, know_conditions),
    ("LoopInvariants", BASIC, lift_invariants),
    ("CountedLoops", BASIC, count_trips),
    ("CollectedSequences", BASIC, collect_sequences),
    ("ShapesInLoops", BASIC, sink_shapes),
    ("SliceSizes", BASIC, size_slices),
    ("CommonSubexpressionElimination", BASIC, merge_common),
    ("BranchSelection", EXTENDED, select_branches),
    ("ConvAffineFusion", BASIC, fold_affine),
    ("PadFusion", BASIC, fold_padding),
)
