"""What no structure gives or leaves out, no provider is judged by: every attribute, operand and result of every operator that the CPU
provider claims is given by one of the kit's structures, but for those that are named here with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnx import defs, helper

from onnxplug.plugins import registry
from onnxplug_testkit.kernels.cells import claims, schemas
from onnxplug_testkit.kernels.structures import Structure, structures
from onnxplug_testkit.models import CPU
from onnxplug_testkit.subject import Subject

_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional

_HINTS = {
    "GroupNormalization": "stash_type", "LayerNormalization": "stash_type", "RMSNormalization": "stash_type", "Range": "stash_type",
    "SimplifiedLayerNormalization": "stash_type", "QuantizeLinear": "precision", "LinearAttention": "chunk_size state_window",
    "TopK": "sorted", "Constant": "sparse_value", "Optional": "type input", "StringNormalizer": "locale", "CastLike": "round_mode",
    "Adam": "norm_coefficient_post", "MaxpoolWithMask": "storage_order", "MatMulNBits": "weight_prepacked",
    "FusedGemm": "activation_gamma", "FusedMatMulActivation": "activation_gamma activation_axis",
}  # fmt: skip
"""How exact, in which steps or in which order to compute, which any result within the operator's precision obeys, and what no kernel of
ours or onnxruntime's takes."""
_NEEDED = {
    "AttnLSTM": "QW MW V M", "GatedDeltaNet": "key value decay beta update_rule", "DecoderMaskedMultiHeadAttention": "key value",
    "QMoE": "fc1_scales fc2_scales", "Attention": "bias",
}  # fmt: skip
"""Operands that a schema calls optional and kernels need: where they are left out, onnxruntime refuses the node or ends the process."""
_UNJUDGED = {
    "OneHotEncoder": "zeros", "Attention": "past_present_share_buffer rotary_embedding_dim do_rotary past_sequence_length",
    "TreeEnsembleClassifier": "base_values_as_tensor class_weights_as_tensor nodes_values_as_tensor nodes_hitrates_as_tensor",
    "CausalConvWithState": "state_update_capacity state_window state_length state_channels_last ndim input_channel_offset input_channels "
    "state_update", "DecoderMaskedSelfAttention": "do_rotary", "GatedAdd": "gate_weight", "MatMulBnb4": "transB",
    "GroupQueryAttention": "sliding_window_cache query_seqlens", "MatMulPacked": "global_scale", "MoE": "swiglu_limit_after_activation",
    "QAttention": "past_present_share_buffer do_rotary", "SkipSimplifiedLayerNormalization": "mean",
    "VarlenCausalConvWithState": "group_size delta_offset kernel_delta previous_mask",
    "QMoE": "weights_prepacked fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits swiglu_limit_after_activation "
    "normalize_routing_weights quant_type use_sparse_mixer accuracy_level fc3_experts_weights fc3_scales fc3_experts_bias fc3_zero_points "
    "router_weights fc1_global_scale fc2_global_scale fc1_act_scale fc2_act_scale fc1_act_block_scale fc2_act_block_scale",
}  # fmt: skip
"""What no oracle computes: onnxruntime has it on other devices only, or contradicts its own text."""


def test_every_feature_is_given_by_some_structure() -> None:
    excused = {
        (op_type, name)
        for table in (_HINTS, _NEEDED, _UNJUDGED)
        for op_type, names in table.items()
        for name in names.split()
    }
    found = {(op_type, name) for op_type, schema, known in _judged() for name in _missing(schema, known)}
    assert not found - excused, "give these in kernels/own/"
    assert not excused - found, "these are given now"


def _judged() -> Iterator[tuple[str, Any, Sequence[Structure]]]:
    """The operators that the CPU provider claims in their newest versions: names, schemas and the kit's structures."""
    registry.record(CPU, load=True)
    with Subject(registry.spec(CPU)).instance() as instance:
        own = instance.call("get_op_schemas") or ()
        keys = [claimed.key for claimed in claims(instance.call("get_kernel_registry") or (), own)]
    known = {**schemas(), **{(s.domain, s.name, s.since_version): s for s in own}}
    newest = {key[:2]: key for key in sorted(keys)}
    for domain_and_name, key in newest.items():
        yield key[1], known[key], structures().get(domain_and_name, ())


def _missing(schema: Any, known: Sequence[Structure]) -> Iterator[str]:
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        usual = [helper.get_attribute_value(default)] if default.name else []
        if all(helper.get_attribute_value(s.attributes[name]) in usual for s in known if name in s.attributes):
            yield name
    for place, formal in enumerate(schema.inputs):
        given = {len(s.inputs) > place and s.inputs[place] is not None for s in known}
        if True not in given or (formal.option == _OPTIONAL and False not in given):
            yield formal.name
    for place, formal in enumerate(schema.outputs):
        if not any(len(s.outputs) > place and s.outputs[place] is not None for s in known):
            yield formal.name
