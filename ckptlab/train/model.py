"""A GPT over bytes with 0.9 million parameters: small enough for two CPU cores, with all that makes checkpoints interesting.

It has dropout (so that a resume must bring back each rank's random state) and one tensor under two names (`embed.weight` is
`head.weight`). It knows nothing of ranks: the job shards it.

Shapes: B sequences, T positions, C channels, H heads, D channels a head.
"""

import torch
from torch import nn
from torch.nn import functional as F

NUM_BYTES = 256


class Block(nn.Module):
    """Causal attention, then a small network; each adds to what came in."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """`[B, T, C]` to `[B, T, C]`."""
        x_BTC = x_BTC + self.dropout(self.attention(self.attention_norm(x_BTC)))
        out_BTC: torch.Tensor = x_BTC + self.dropout(self.mlp(x_BTC))
        return out_BTC

    def attention(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """Let every position look at itself and at those before it."""
        parts = self.query_key_value(x_BTC).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        query_BHTD, key_BHTD, value_BHTD = (part.transpose(1, 2) for part in parts)
        seen_BHTD = F.scaled_dot_product_attention(query_BHTD, key_BHTD, value_BHTD, is_causal=True)
        out_BTC: torch.Tensor = self.attention_out(seen_BHTD.transpose(1, 2).flatten(-2))
        return out_BTC


class GPT(nn.Module):
    """Predict the next byte at every position."""

    def __init__(self, context: int, width: int = 132, num_blocks: int = 4, num_heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_BYTES, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, num_heads, dropout) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, NUM_BYTES, bias=False)
        self.apply(initialise)
        self.head.weight = self.embed.weight

    def forward(self, bytes_BT: torch.Tensor) -> torch.Tensor:
        """Bytes `[B, T]` to the scores of the next byte, `[B, T, 256]`."""
        x_BTC = self.dropout(self.embed(bytes_BT) + self.positions.weight[: bytes_BT.shape[1]])
        for block in self.blocks:
            x_BTC = block(x_BTC)
        scores: torch.Tensor = self.head(self.norm(x_BTC))
        return scores


def initialise(module: nn.Module) -> None:
    """Draw weights as GPT-2 does, so that the first loss is near log(256): the tied embedding would start far above."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
