"""A small decoder-only transformer of the next token, whole or with low-rank adapters (LoRA, Hu et al. 2022).

    symbol    here                     meaning
    d         width                    size of the residual stream
    L, H      layers, heads            blocks, and attention heads in each
    r         lora_rank                rank of the adapters on query, key, value and output matrices; 0: all weights are trained
    W + B A   Adapted                  A is random at the beginning, B is zero: the adapters change nothing before training

Normalisation comes before attention and before the feed-forward layer (pre-norm), positions are learned, and outputs use the
weights of the embedding. With adapters, everything else is fixed: the flat vector holds the adapters alone, and canaries live
in that smaller space.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from coalmine import _validate
from coalmine.errors import InputFileError
from coalmine.models.language import SPECIAL, MeanTokenLoss, count_tokens, count_words
from coalmine.models.model import Model


class Adapted(nn.Module):
    """A linear map with fixed weights and a trained low-rank part; without a rank the weights themselves are trained."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.fixed = nn.Linear(inputs, outputs)
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5) if rank else None
        self.up = nn.Parameter(torch.zeros(outputs, rank)) if rank else None

    def forward(self, inputs: Tensor) -> Tensor:
        """W x + b, and B A x."""
        made: Tensor = self.fixed(inputs)
        return made if self.down is None or self.up is None else made + inputs @ self.down.T @ self.up.T


class TransformerBlock(nn.Module):
    """Causal self-attention and a feed-forward layer, each added to what comes in."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.together = Adapted(width, 3 * width, rank), Adapted(width, width, rank)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, stream: Tensor) -> Tensor:
        """(examples, time, width) to the same."""
        examples, time, width = stream.shape
        parts = self.attention(self.before_attention(stream)).view(examples, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.together(seen.transpose(1, 2).reshape(examples, time, width))
        made: Tensor = stream + self.feed(self.before_feed(stream))
        return made


class Gpt(nn.Module):
    """Embedding, blocks, and an output for each token."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int, rank: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Parameter(0.02 * torch.randn(context, width))
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, rank) for _ in range(layers)))
        self.last = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs of all tokens as the next one, (examples, time, tokens)."""
        if tokens.shape[1] > len(self.position):
            raise ValueError(f"windows of {tokens.shape[1]} tokens do not fit a context of {len(self.position)}.")
        stream = self.blocks(self.embedding(tokens) + self.position[: tokens.shape[1]])
        made: Tensor = self.last(stream) @ self.embedding.weight.T
        return made


def build_gpt(vocabulary: int, context: int, width: int, heads: int, layers: int, rank: int, initial: str | None) -> nn.Module:
    """The module; with a file its weights come from it, and with adapters they are fixed."""
    module = Gpt(vocabulary, context, width, heads, layers, rank)
    if initial is not None:
        _load(module, Path(initial))
    if rank:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name.rpartition(".")[2] in ("down", "up"))
    return module


def gpt(
    *,
    vocabulary: int,
    context: int = 64,
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    lora_rank: int = 0,
    initial: str | None = None,
) -> Model:
    """A small transformer; `lora_rank` trains adapters alone, and `initial` is a safetensors file of weights.

    >>> gpt(vocabulary=100).dim
    110592
    >>> gpt(vocabulary=100, lora_rank=2).dim
    1536
    """
    sizes = {"vocabulary": vocabulary, "context": context, "width": width, "heads": heads, "layers": layers}
    sizes = {
        name: _validate.whole(name, value, least=SPECIAL + 1 if name == "vocabulary" else 1) for name, value in sizes.items()
    }
    _validate.whole("layers", layers, least=1, most=_validate.MOST_LAYERS)
    if sizes["width"] % sizes["heads"]:
        raise ValueError(f"width={width} must be a multiple of heads={heads}.")
    build = partial(build_gpt, **sizes, rank=_validate.whole("lora_rank", lora_rank), initial=initial)
    return Model("gpt", build, MeanTokenLoss(), count_words, count_tokens, "tokens")


def save_weights(module: nn.Module, path: str | Path, about: dict[str, str]) -> None:
    """All weights of a module without its adapters, as safetensors."""
    from safetensors.torch import save_file

    kept = {
        name: value.contiguous() for name, value in module.state_dict().items() if name.rpartition(".")[2] not in ("down", "up")
    }
    save_file(kept, str(path), metadata=about)


def _load(module: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise InputFileError(f"there is no file {str(path)!r}; weights of a model are expected there (safetensors).")
    try:
        missing, strange = module.load_state_dict(load_file(str(path)), strict=False)
    except (SafetensorError, RuntimeError) as error:
        raise InputFileError(f"{path.name} does not fit this model: {str(error).splitlines()[0]}") from None
    lacking = [name for name in missing if name.rpartition(".")[2] not in ("down", "up")]
    if lacking or strange:
        raise InputFileError(f"{path.name} does not fit this model: {[*lacking, *strange][0]!r} is missing or strange.")
