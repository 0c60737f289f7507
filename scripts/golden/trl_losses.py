#!/usr/bin/env python3
"""Golden losses and gradients out of TRL's own `GRPOTrainer._compute_loss`.

The trainer is not built: `_compute_loss` runs on an object that carries only the settings it
reads, and its model call is replaced by a leaf tensor of log-probs, so loss and gradient are
TRL's, to the last line, in float64. `tool_mask` stands for tokens that were injected and not
sampled.

    python3 -m venv /tmp/trl && /tmp/trl/bin/pip install trl==1.9.0 torch==2.11.0 requests
    /tmp/trl/bin/python scripts/golden/trl_losses.py crates/objective/testdata/trl_losses.json
"""

import collections
import json
import sys
import types

import torch
import transformers
import trl
from trl.trainer.grpo_trainer import GRPOTrainer

SEED = 20251013
LENGTHS = [[3, 7, 5], [6, 2, 4]]  # two prompts, three completions each
MAX_COMPLETION_LENGTH = 8
ADVANTAGES = [[1.2, -0.7, -0.5], [-0.9, 0.4, 0.5]]
INJECTED = {(0, 1): [4, 5], (1, 0): [0]}  # (prompt, completion): token positions

# name: loss_type, importance_sampling_level, epsilon_low, epsilon_high, beta (KL, k3)
CASES = {
    "grpo": ("grpo", "token", 0.2, 0.2, 0.0),
    "grpo_kl": ("grpo", "token", 0.2, 0.2, 0.04),
    "bnpo": ("bnpo", "token", 0.2, 0.2, 0.0),
    "dapo": ("dapo", "token", 0.2, 0.28, 0.0),
    "dr_grpo": ("dr_grpo", "token", 0.2, 0.2, 0.0),
    "cispo": ("cispo", "token", 0.2, 5.0, 0.0),
    "cispo_kl": ("cispo", "token", 0.2, 4.0, 0.01),
    "cispo_sequence": ("cispo", "sequence", 0.2, 1.05, 0.0),
    "gspo": ("grpo", "sequence", 3e-4, 4e-4, 0.0),
    "gspo_wide": ("grpo", "sequence", 0.2, 0.28, 0.0),
}


class Accelerator:
    """One process: reductions are the identity."""

    num_processes = 1
    sync_gradients = True

    def gather(self, tensor):
        return tensor.reshape(-1)

    gather_for_metrics = gather

    def reduce(self, tensor, reduction):
        return tensor


def inputs():
    generator = torch.Generator().manual_seed(SEED)
    rows, width = sum(map(len, LENGTHS)), max(map(max, LENGTHS))
    draw = lambda scale: scale * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    old = -draw(1.0).abs() - 0.05
    new = torch.minimum(old + draw(0.4), torch.tensor(-1e-3, dtype=torch.float64))
    new[1, 1], old[1, 1] = -0.1, -3.1  # far above CISPO's cap
    new[4, 0] = old[4, 0] - 2.0  # far below the lower clip
    reference = torch.minimum(new + draw(0.3), torch.tensor(-1e-3, dtype=torch.float64))
    entropies = draw(1.0).abs()
    mask, tool_mask = torch.zeros(rows, width, dtype=torch.int64), torch.ones(rows, width, dtype=torch.int64)
    for row, length in enumerate(sum(LENGTHS, [])):
        mask[row, :length] = 1
    for (prompt, completion), positions in INJECTED.items():
        tool_mask[prompt * len(LENGTHS[0]) + completion, positions] = 0
    return old, new, reference, entropies, mask, tool_mask


def run(case, entropy_coef=0.0):
    loss_type, level, low, high, beta = case
    old, new, reference, entropies, mask, tool_mask = inputs()
    leaf = new.clone().requires_grad_(True)
    stand_in = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (leaf, entropies, None),
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=level,
        beta=beta,
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None),
        loss_type=loss_type,
        epsilon_low=low,
        epsilon_high=high,
        use_vllm=False,
        model=types.SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        accelerator=Accelerator(),
        max_completion_length=MAX_COMPLETION_LENGTH,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=entropy_coef != 0.0,
        use_adaptive_entropy=False,
        entropy_coef=entropy_coef,
        _metrics={"train": collections.defaultdict(list)},
    )
    rows = old.shape[0]
    batch = {
        "prompt_ids": torch.ones(rows, 1, dtype=torch.int64),
        "prompt_mask": torch.ones(rows, 1, dtype=torch.int64),
        "completion_ids": torch.ones_like(mask),
        "completion_mask": mask,
        "tool_mask": tool_mask,
        "advantages": torch.tensor(sum(ADVANTAGES, []), dtype=torch.float64),
        "old_per_token_logps": old,
        "ref_per_token_logps": reference,
        "num_items_in_batch": (mask * tool_mask).sum().double(),
    }
    loss = GRPOTrainer._compute_loss(stand_in, None, batch)
    loss.backward()
    metrics = stand_in._metrics["train"]
    return {
        "loss_type": loss_type,
        "importance_sampling_level": level,
        "epsilon_low": low,
        "epsilon_high": high,
        "beta": beta,
        "loss": loss.item(),
        "gradient": ragged(leaf.grad),
        "kl": metrics["kl"][0] if beta else None,
        "clip_fraction": (metrics["cispo_clip_ratio"] or metrics["clip_ratio/region_mean"])[0],
    }


def ragged(tensor):
    lengths = sum(LENGTHS, [])
    return [tensor[row, :length].tolist() for row, length in enumerate(lengths)]


def main():
    old, new, reference, _, _, tool_mask = inputs()
    golden = {
        "made_by": "scripts/golden/trl_losses.py",
        "versions": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "completions_per_prompt": len(LENGTHS[0]),
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "advantages": sum(ADVANTAGES, []),
        "generator_logprobs": ragged(old),
        "trainer_logprobs": ragged(new),
        "reference_logprobs": ragged(reference),
        "is_injected": [[value == 0 for value in row] for row in ragged(tool_mask)],
        "cases": {name: run(case) for name, case in CASES.items()},
    }
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
