"""A character-level GPT on film reviews: ordinary training, in which training and validation loss fall together."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from grokfast.lab.tasks.base import Evaluation, TaskConfig, TaskDefaults, draw, setting
from grokfast.lab.tasks.data import digest, locate, read_text

CHARACTERS = 96  # printable ASCII, and one for all others


@dataclass(frozen=True)
class Gpt(TaskConfig):
    """The next character of a film review, by a small GPT."""

    measure = "loss"
    step_seconds = 0.03

    width: int = setting(128, "size of the residual stream", learning=True)
    depth: int = setting(2, "number of blocks", learning=True)
    heads: int = setting(4, "attention heads", learning=True)
    context: int = setting(64, "characters that the network sees")
    batch_size: int = setting(16, "windows per step", learning=True)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(lr=3e-3, steps=500, eval_every=50, warmup_steps=25, weight_decay={None: 0.1}, level=2.0)

    def make(self, *, seed, device, data_dir):
        path = locate(data_dir, ["imdb"], ["*.csv", "*.csv.gz"], wanted="IMDB Dataset.csv")
        return GptTask(self, read_text(path), seed, device)


class GptTask:
    """Windows of a text, drawn at random, and the network that predicts the next character."""

    epoch_steps = 50

    def __init__(self, config: Gpt, text: str, seed: int, device: str) -> None:
        self.config, self.device = config, device
        self.model, self.generator = draw(seed, lambda: Network(config))
        self.model.to(device)
        codes = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long().sub(31).clamp(0, CHARACTERS - 1)
        cut = 9 * len(codes) // 10  # the last tenth is for validation
        self.data = digest(codes.numpy().tobytes())
        self.text = {"train": codes[:cut].to(device), "val": codes[cut:].to(device)}
        starts = torch.linspace(0, len(codes) - cut - config.context - 1, 128).long()
        self.fixed = {"val": self.windows("val", starts), "train": self.windows("train", starts)}

    def windows(self, split: str, starts: torch.Tensor) -> torch.Tensor:
        places = starts[:, None] + torch.arange(self.config.context + 1)
        return self.text[split][places.to(self.device)]  # (batch, context + 1)

    def next_batch(self) -> torch.Tensor:
        last = len(self.text["train"]) - self.config.context - 1
        return self.windows("train", torch.randint(last, (self.config.batch_size,), generator=self.generator))

    def loss(self, batch: torch.Tensor):
        logits = self.model(batch[:, :-1])  # (batch, context, characters)
        return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()), None

    @torch.no_grad()
    def evaluate(self, split: str) -> Evaluation:
        return Evaluation(float(self.loss(self.fixed[split])[0]), None)

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state) -> None:
        self.generator.set_state(state["generator"])


class Network(nn.Module):
    """A GPT with learnt positions."""

    def __init__(self, config: Gpt) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CHARACTERS, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, CHARACTERS, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight  # (batch, context, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)  # (batch, heads, context, width / heads)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))
