"""The Trainer of Transformers: one callback and a resume. A tiny Llama learns to add modulo 11."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import grokfast
from grokfast.integrations.transformers import GrokfastCallback

P, EQUALS = 11, 11
x, y = torch.cartesian_prod(torch.arange(P), torch.arange(P)).T
tokens = torch.stack([x, y, torch.full_like(x, EQUALS), (x + y) % P], dim=1)  # x, y, "=", answer
labels = torch.cat([torch.full_like(tokens[:, :3], -100), tokens[:, 3:]], dim=1)  # only the answer counts
dataset = [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]

args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=60,
    per_device_train_batch_size=32,
    learning_rate=3e-3,
    weight_decay=0.1,
    lr_scheduler_type="constant",
    save_steps=30,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    dataloader_pin_memory=False,
)


def build() -> Trainer:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=12, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    callback = GrokfastCallback(grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line
    return Trainer(LlamaForCausalLM(config), args, train_dataset=dataset, callbacks=[callback])


whole = build()
whole.train()
resumed = build()  # as in a new process
resumed.train(resume_from_checkpoint=f"{args.output_dir}/checkpoint-30")
equal = all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))
print(f"resumed at step 30, equal at step 60 to the uninterrupted run: {equal}")
assert equal
