"""The shapes of the states that are measured. Pure."""

import math
from collections.abc import Mapping

Shapes = Mapping[str, tuple[int, ...]]

MOMENTS = ("exp_avg", "exp_avg_sq")  # of the same shape as the parameter; "step" has none
ITEM_BYTES = 4  # everything is float32, as optimizers keep it
NARROWEST, LEAST_LAYERS = 16, 4


def transformer(num_bytes: int) -> dict[str, tuple[int, ...]]:
    """Return the parameters of a transformer whose state, AdamW's moments included, has about `num_bytes`; at least a layer.

    The width is the largest power of two with which that is four layers or more: tensors grow with the state, as models do.
    """
    width = NARROWEST
    while LEAST_LAYERS * _state_bytes(layer(2 * width, 0)) <= num_bytes:
        width *= 2
    num_layers = max(1, round(num_bytes / _state_bytes(layer(width, 0))))
    return {name: shape for number in range(num_layers) for name, shape in layer(width, number).items()}


def layer(width: int, number: int) -> dict[str, tuple[int, ...]]:
    """Return the parameters of one layer, of four times the width inside."""
    inner, prefix = 4 * width, f"layers.{number}"
    return {
        **{f"{prefix}.attention.{part}.weight": (width, width) for part in ("q", "k", "v", "o")},
        f"{prefix}.mlp.gate.weight": (inner, width),
        f"{prefix}.mlp.up.weight": (inner, width),
        f"{prefix}.mlp.down.weight": (width, inner),
        f"{prefix}.norm1.weight": (width,),
        f"{prefix}.norm2.weight": (width,),
    }


def llama_405b() -> dict[str, tuple[int, ...]]:
    """Return the parameters of Llama 3.1 405B as its published configuration (`config.json`) has them."""
    hidden, num_layers, num_heads, num_kv_heads, inner, words = 16384, 126, 128, 8, 53248, 128256
    kv = hidden // num_heads * num_kv_heads
    one_layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    layers = {
        f"model.layers.{number}.{part}.weight": shape for number in range(num_layers) for part, shape in one_layer.items()
    }
    ends = {"model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (words, hidden)}
    return {**ends, **layers}


def with_moments(model: Shapes) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the shapes of the whole state by section: the parameters, and what AdamW keeps of each."""
    moments = {f"{moment}::{name}": shape for moment in MOMENTS for name, shape in model.items()}
    return {"model": dict(model), "optim": {**moments, **{f"step::{name}": () for name in model}}}


def total_bytes(shapes: Shapes) -> int:
    """Return the bytes of all tensors."""
    return sum(math.prod(shape) for shape in shapes.values()) * ITEM_BYTES


def _state_bytes(model: Shapes) -> int:
    return sum(map(total_bytes, with_moments(model).values()))
