"""A tiny random model in TRL's real trainers, for the adapters' tests.

Not imported by a test that runs without TRL.
"""

import hashlib

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

LETTERS = "abcdefghijklmnopqrstuvwxyz "


def tokenizer():
    """One token a letter."""
    words = {word: n for n, word in enumerate(["<pad>", "<eos>", "<unk>", *LETTERS])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )


def model(seed=0):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=3 + len(LETTERS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def data(rows=16):
    """Prompts with a number, which says what an answer earns and takes."""
    return Dataset.from_list(
        [{"prompt": LETTERS[n % 26] * 3, "number": n} for n in range(rows)]
    )


def outcome(text):
    """Reward in {0, 1} and seconds from 1 to 9 of a text, the same on any machine."""
    digest = hashlib.sha256(text.encode()).digest()
    return float(digest[0] % 2), 1.0 + digest[1] / 32


class Seen:
    """Mixed into a trainer: advantages as they reach the loss, and what was logged."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            self.__dict__.setdefault("seen", []).append(inputs["advantages"].clone())
        return super().compute_loss(model, inputs, *args, **kwargs)


class Grpo(Seen, GRPOTrainer):
    pass


class Rloo(Seen, RLOOTrainer):
    pass


def trainer(
    folder, reward_funcs, form="grpo", *, reward_processing_classes=None, **settings
):
    """GRPO or RLOO on CPU: 2 prompts x 4 answers a step, two steps."""
    kind, config = {"grpo": (Grpo, GRPOConfig), "rloo": (Rloo, RLOOConfig)}[form]
    if form == "grpo":
        settings = {"scale_rewards": "none"} | settings
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "beta": 0.0,
        "learning_rate": 1e-2,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "gradient_checkpointing": False,
    } | settings
    return kind(
        model=model(),
        processing_class=tokenizer(),
        reward_funcs=reward_funcs,
        reward_processing_classes=reward_processing_classes,
        train_dataset=data(),
        eval_dataset=data(),
        args=config(**settings),
    )
