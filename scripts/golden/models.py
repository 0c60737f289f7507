#!/usr/bin/env python3
"""Makes crates/model/testdata: a tiny random model of every architecture, with transformers' numbers.

Each folder is a Hugging Face model (float32) and `golden.safetensors`:
  ids_N          the tokens of sequence N
  weights_N      a loss weight per predicted token
  logits_N       transformers' logits of sequence N (eager attention, float32)
  grad.NAME      gradient of  loss = sum_N sum_t ( -weights_N[t] * logprob[t] - ENTROPY * entropy[t] )
with the loss itself and the versions in its metadata. Models named in GREEDY also have
  greedy         transformers' own greedy continuation (`generate`, with its cache) of sequence 0
The initial spread is large on purpose: with the
usual 0.02 every logit is nearly equal and a wrong rotary embedding would hide below the tolerance.

  python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.3.0
  V/bin/python scripts/golden/models.py crates/model/testdata [NAME ...]
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

ENTROPY = 0.05
LENGTHS = [13, 1, 21, 6]
SMALL = dict(
    vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
LLAMA3 = dict(
    rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=32,
)  # fmt: skip
# Rotations enough that a head of 16 has pairs of all three sorts: kept, in between, stretched.
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32)
PLAIN = dict(rope_type="default", rope_theta=1000.0)
MODELS = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", dict(tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "llama_untied": (
        "LlamaForCausalLM", "LlamaConfig",
        dict(tie_word_embeddings=False, rope_parameters=PLAIN, attention_bias=True, mlp_bias=True, num_key_value_heads=4),
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", dict(tie_word_embeddings=True, rope_parameters=PLAIN)),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", dict(tie_word_embeddings=False, rope_parameters=PLAIN)),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True, mlp_only_layers=[1],
             num_hidden_layers=3, rope_parameters=PLAIN),
    ),
    "llama4_text": (
        "Llama4ForCausalLM", "Llama4TextConfig",
        dict(num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=1, intermediate_size=12,
             intermediate_size_mlp=24, interleave_moe_layer_step=2, no_rope_layer_interval=4, attention_chunk_size=8,
             floor_scale=4, attn_scale=0.3, rope_parameters=PLAIN),
    ),
    "qwen3_yarn": (
        "Qwen3ForCausalLM", "Qwen3Config", dict(tie_word_embeddings=False, head_dim=16, rope_parameters=YARN),
    ),
    "qwen2_yarn": (
        "Qwen2ForCausalLM", "Qwen2Config",
        dict(tie_word_embeddings=True, head_dim=16,
             rope_parameters=YARN | dict(attention_factor=1.3, beta_fast=3.0, beta_slow=0.5, truncate=False)),
    ),
    "mistral": (
        "MistralForCausalLM", "MistralConfig",
        dict(tie_word_embeddings=False, sliding_window=5, num_hidden_layers=3, rope_parameters=PLAIN),
    ),
    "gemma3_text": (
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        dict(num_hidden_layers=4, sliding_window=6, sliding_window_pattern=2, query_pre_attn_scalar=10,
             rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=100.0),
                 full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=4.0),
             )),
    ),
}  # fmt: skip
GREEDY = ["qwen3_yarn", "qwen2_yarn", "mistral", "gemma3_text"]
GREEDY_TOKENS = 40


def randomise(model: torch.nn.Module) -> None:
    # Gemma's norms multiply by 1 + weight.
    middle = 0.0 if model.config.model_type == "gemma3_text" else 1.0
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if "norm" in name:
            parameter.data = middle + 0.2 * noise
        elif "embed" in name:
            parameter.data = noise
        else:
            parameter.data = 0.3 * noise


def golden(model: torch.nn.Module, vocabulary: int) -> dict[str, torch.Tensor]:
    out, loss = {}, torch.zeros(())
    for index, length in enumerate(LENGTHS):
        # Without 0: transformers gives the padding row of an embedding no gradient, we have no padding.
        ids = torch.randint(1, vocabulary, (length,))
        weights = torch.randn(max(length - 1, 0))
        logits = model(ids[None], use_cache=False).logits[0]
        logprobs = logits[:-1].log_softmax(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        chosen = logprobs.gather(1, ids[1:, None])[:, 0]
        loss = loss - (weights * chosen).sum() - ENTROPY * entropy.sum()
        out[f"ids_{index}"] = ids
        out[f"weights_{index}"] = weights
        out[f"logits_{index}"] = logits.detach().clone()
    loss.backward()
    return out | {"loss": loss.detach()[None]}


def greedy(model: torch.nn.Module, prompt: torch.Tensor) -> torch.Tensor:
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        out = model.generate(
            prompt[None], attention_mask=torch.ones_like(prompt)[None], max_new_tokens=GREEDY_TOKENS, do_sample=False
        )
    assert out.shape[1] == len(prompt) + GREEDY_TOKENS
    return out[0, len(prompt) :]


def hub_gradients(model: torch.nn.Module, folder: pathlib.Path) -> dict[str, torch.Tensor]:
    """Gradients under the names and shapes of the saved file: transformers itself maps them when it saves."""
    for parameter in model.parameters():
        parameter.data = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
    model.save_pretrained(folder / "gradients")
    from safetensors.torch import load_file

    gradients = load_file(folder / "gradients" / "model.safetensors")
    for file in (folder / "gradients").iterdir():
        file.unlink()
    (folder / "gradients").rmdir()
    return {f"grad.{name}": tensor for name, tensor in gradients.items()}


def main() -> None:
    target, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for seed, (name, (architecture, config, extra)) in enumerate(MODELS.items()):
        if wanted and name not in wanted:
            continue
        torch.manual_seed(seed + 1)
        settings = getattr(transformers, config)(**(SMALL | extra), attn_implementation="eager")
        model = getattr(transformers, architecture)(settings).float().eval()
        randomise(model)
        if settings.tie_word_embeddings:
            model.tie_weights()
        folder = target / name
        model.save_pretrained(folder, max_shard_size="12KB" if name == "qwen3" else "1GB")
        numbers = golden(model, settings.vocab_size)
        if name in GREEDY:
            numbers["greedy"] = greedy(model, numbers["ids_0"])
        numbers |= hub_gradients(model, folder)
        facts = {"torch": torch.__version__, "transformers": transformers.__version__, "entropy": str(ENTROPY)}
        save_file({k: v.contiguous() for k, v in numbers.items()}, folder / "golden.safetensors", metadata=facts)
        print(name, json.dumps(facts), f"loss {numbers['loss'].item():.6f}", sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
