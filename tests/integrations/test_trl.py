"""TRL's SFTTrainer and PEFT's LoRA with a filter do what a plain loop with gradfilter_ema does."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import grokfast

pytest.importorskip("trl")
pytest.importorskip("peft")

from datasets import Dataset
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_lorafa_optimizer, create_loraplus_optimizer, create_riemannian_optimizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from grokfast.integrations.transformers import GrokfastCallback

STEPS, LR, ALPHA, LAMB = 4, 0.01, 0.9, 2.0
WORDS = ["<pad>", "<eos>", "+", "=", *"0123456"]
LORA = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
BOTH = pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "LoRA"])


def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).double()


def trainer(path: Path, lora: LoraConfig | None, **changes: Any) -> SFTTrainer:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    given = {
        "output_dir": str(path), "max_steps": STEPS, "per_device_train_batch_size": 4, "learning_rate": LR,
        "lr_scheduler_type": "constant", "save_strategy": "no", "report_to": "none", "disable_tqdm": True,
        "use_cpu": True, "bf16": False, "dataloader_pin_memory": False,
    }  # fmt: skip
    return SFTTrainer(
        language_model(),
        SFTConfig(**{**given, **changes}),
        train_dataset=Dataset.from_list([{"text": f"{a} + {b} = {(a + b) % 7}"} for a in range(7) for b in range(7)]),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"),
        peft_config=lora,
        callbacks=[GrokfastCallback(grokfast.EMA(alpha=ALPHA, lamb=LAMB))],
    )


def handle_of(host: SFTTrainer) -> grokfast.Attachment:
    found = next(each for each in host.callback_handler.callbacks if isinstance(each, GrokfastCallback)).handle
    assert found is not None
    return found


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def train_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, steps: list[list[Tensor]]) -> None:
    averages = None
    for batches in steps:
        optimizer.zero_grad()
        for tokens in batches:
            (model(input_ids=tokens, labels=tokens).loss / len(batches)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the Trainer's max_grad_norm
        averages = grokfast.gradfilter_ema(model, averages, alpha=ALPHA, lamb=LAMB)
        optimizer.step()


@BOTH
@pytest.mark.parametrize("accumulated", [1, 3])
def test_sft_equals_a_plain_loop_with_gradfilter_ema(lora: LoraConfig | None, accumulated: int, tmp_path: Path) -> None:
    host = trainer(tmp_path, lora, gradient_accumulation_steps=accumulated)
    by_hand, seen = language_model() if lora is None else get_peft_model(language_model(), lora), list[Tensor]()
    by_hand.load_state_dict(host.model.state_dict())
    host.model.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"]), with_kwargs=True)
    host.train()
    steps = [seen[i : i + accumulated] for i in range(0, len(seen), accumulated)]
    train_by_hand(by_hand, torch.optim.AdamW(trainable(by_hand), lr=LR, weight_decay=0.0), steps)
    assert handle_of(host).step == len(steps) == STEPS  # once per step, not once per batch
    # The plain loss rounds to float32 elsewhere than TRL's; without the filter the weights are 0.01 apart.
    torch.testing.assert_close(list(host.model.parameters()), list(by_hand.parameters()), rtol=0, atol=1e-5)


def test_only_adapters_have_filter_state(tmp_path: Path) -> None:
    host = trainer(tmp_path, LORA)
    host.train()
    filtered = {name for name, p in host.model.named_parameters() if p in handle_of(host).state}
    assert filtered == {name for name, _ in host.model.named_parameters() if "lora_" in name}
    assert len(filtered) == 4  # A and B of two matrices


@BOTH
def test_resumed_training_continues_bit_for_bit(lora: LoraConfig | None, tmp_path: Path) -> None:
    whole, resumed = (trainer(tmp_path, lora, save_strategy="steps", save_steps=2) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert handle_of(resumed).step == STEPS
    for p, q in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(p, q)


def plus(model: Any) -> torch.optim.Optimizer:
    return create_loraplus_optimizer(model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=4.0)


def fa(model: Any) -> torch.optim.Optimizer:
    return create_lorafa_optimizer(model, r=2, lora_alpha=8, lr=LR)


def riemannian(model: Any) -> torch.optim.Optimizer:
    return create_riemannian_optimizer(model, torch.optim.AdamW, lr=LR)


@pytest.mark.parametrize("make", [plus, fa, riemannian])
def test_optimizers_of_peft_equal_gradfilter_ema_by_hand(make: Any) -> None:
    model = get_peft_model(language_model(), copy.deepcopy(LORA))
    by_hand = copy.deepcopy(model)
    steps = [[torch.randint(len(WORDS), (4, 6), generator=torch.Generator().manual_seed(i))] for i in range(STEPS)]
    train_by_hand(by_hand, make(by_hand), steps)
    optimizer = make(model)
    handle = grokfast.attach(optimizer, grokfast.EMA(alpha=ALPHA, lamb=LAMB))
    for (tokens,) in steps:
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert handle.step == STEPS
    torch.testing.assert_close(list(model.parameters()), list(by_hand.parameters()), rtol=0, atol=0)
