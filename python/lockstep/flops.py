"""FLOPs of a step and of the device, for model FLOPs utilisation: MFU = flops / (step time x peak).

Formula for transformers, per token and training step (forward and backward, without recomputation):

    6 N + 12 L H Q T      L layers, H heads, Q head size, T sequence length; the second term is halved for causal masks

N counts the parameters that are multiplied with: attention projections, the MLP (of a mixture: the experts a token
visits, and the router) and the output head, once, tied or not. Input embeddings, norms and biases do not count.
"""

import csv
import os
import re

DTYPES = {
    "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8": "fp8", "float4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4",
}  # fmt: skip

# Models whose MLP has three matrices. Others are told by their activation.
GATED = (
    "llama",
    "mistral",
    "mixtral",
    "qwen",
    "gemma",
    "phi3",
    "deepseek",
    "olmo",
    "cohere",
    "granite",
    "smollm",
    "glm",
)
NOT_GATED = (
    "gpt2",
    "gpt_neo",
    "gptj",
    "gpt_bigcode",
    "opt",
    "bloom",
    "bert",
    "roberta",
    "vit",
    "falcon",
    "phi-",
    "starcoder",
)

ALIASES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "layers": ("layers", "num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("heads", "num_attention_heads", "n_head"),
    "kv_heads": ("kv_heads", "num_key_value_heads", "num_query_groups"),
    "head_size": ("head_size", "head_dim", "kv_channels"),
    "ffn_size": ("ffn_size", "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocabulary": ("vocabulary", "vocab_size", "padded_vocab_size"),
    "experts": ("experts", "num_local_experts", "n_routed_experts", "num_experts", "num_moe_experts"),
    "experts_per_token": ("experts_per_token", "num_experts_per_tok", "moe_router_topk"),
    "expert_size": ("expert_size", "moe_intermediate_size", "moe_ffn_hidden_size"),
    "shared_experts": ("shared_experts", "n_shared_experts"),
    "shared_size": ("shared_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
    "dense_layers": ("dense_layers", "first_k_dense_replace"),
    "parameters": ("parameters", "num_parameters"),
}


class NotKnown(Exception):
    """The formula does not cover this model; the text says why."""


def _look(model, name):
    for alias in ALIASES[name]:
        value = model.get(alias) if isinstance(model, dict) else getattr(model, alias, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
    return None


def _text(model, name) -> str:
    value = model.get(name) if isinstance(model, dict) else getattr(model, name, None)
    return value.lower() if isinstance(value, str) else ""


def _is_gated(model) -> bool:
    told = model.get("gated") if isinstance(model, dict) else None
    if told is not None:
        return bool(told)
    kind = _text(model, "model_type")
    if kind.startswith(NOT_GATED):
        return False
    if kind.startswith(GATED):
        return True
    return any(
        _text(model, name) in ("silu", "swiglu", "swish")
        for name in ("hidden_act", "hidden_activation", "activation_function")
    )


def parameters(model) -> float:
    """N of the formula, from a configuration object or dictionary in the names that Hugging Face, Megatron or ALIASES
    use, or as {"parameters": N}. NotKnown says what is missing."""
    told = _look(model, "parameters")
    if told:
        return float(told)
    if getattr(model, "is_encoder_decoder", False) or (isinstance(model, dict) and model.get("is_encoder_decoder")):
        raise NotKnown("encoder-decoder models are not covered; report flops per step")
    hidden, layers, heads = _look(model, "hidden_size"), _look(model, "layers"), _look(model, "heads")
    for name, value in (("hidden_size", hidden), ("layers", layers), ("heads", heads)):
        if not value:
            raise NotKnown(f"the model's configuration has no {name} ({', '.join(ALIASES[name])})")
    kv_heads = _look(model, "kv_heads") or heads
    head_size = _look(model, "head_size") or hidden / heads
    matrices = 3 if _is_gated(model) else 2
    attention = hidden * head_size * (2 * heads + 2 * kv_heads)
    dense = matrices * hidden * (_look(model, "ffn_size") or 4 * hidden)
    experts, chosen = _look(model, "experts"), _look(model, "experts_per_token")
    if experts and chosen:
        size = _look(model, "expert_size") or _look(model, "ffn_size") or 4 * hidden
        shared = _look(model, "shared_size") or size * (_look(model, "shared_experts") or 0)
        sparse = matrices * hidden * (size * chosen + shared) + hidden * experts
        dense_layers = min(_look(model, "dense_layers") or 0, layers)
        mlp = dense * dense_layers + sparse * (layers - dense_layers)
    else:
        mlp = dense * layers
    return float(attention * layers + mlp + hidden * (_look(model, "vocabulary") or 0))


def flops_per_token(model, sequence: int | None = None, causal: bool = True) -> float:
    """Of a training step. Without a sequence length the attention term is left out."""
    flops = 6.0 * parameters(model)
    layers, heads, hidden = _look(model, "layers"), _look(model, "heads"), _look(model, "hidden_size")
    head_size = _look(model, "head_size") or (hidden / heads if hidden and heads else None)
    if sequence and layers and heads and head_size:
        flops += (6.0 if causal else 12.0) * layers * heads * head_size * sequence
    return flops


def _rows():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "peak_flops.csv"), newline="") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def peak(device_name: str, dtype: str = "bf16") -> float | None:
    """Dense peak FLOP/s of the device by the table; None: not known."""
    dtype = str(dtype).removeprefix("torch.")
    dtype = DTYPES.get(dtype, dtype)
    for row in _rows():
        if row["dtype"] in (dtype, "*") and re.search(row["pattern"], device_name, re.IGNORECASE):
            return None if row["flops"] == "unknown" else float(row["flops"])
    return None
