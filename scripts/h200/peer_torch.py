#!/usr/bin/env python3
"""The PyTorch side of `scalerl bench train`: same shapes, same lengths, same count of operations.

  peer_torch.py train --mode eager|compile [--head fp32|bf16] [--mixed [--packed]] [shape flags as in scalerl bench]

The model is written the way a careful PyTorch user writes it: fused QKV and gate-up products, F.rms_norm,
scaled_dot_product_attention (flash on CUDA), bf16 compute with float32 master weights, fused AdamW, clipping to 1.
--head fp32 multiplies float32 logits from the bf16 activations and weights (never TF32); bf16 rounds them, then casts.
--mixed takes scalerl's mixed lengths and pads to the longest, which is what a rectangular batch has to do; tokens/s
counts real tokens only. --packed lays the mixed lengths end to end instead, nothing padded, with flex attention under a
mask of documents (torch.compile only, where it is one fused kernel); the head works on the whole row.
"""

import argparse
import resource
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["train"])
for name, default in dict(
    layers=4, dim=256, heads=4, kv_heads=2, ffn=768, vocab=512, seq=256, batch=8, warmup=5, steps=20, threads=0
).items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--mode", default="eager", choices=["eager", "compile"])
parser.add_argument("--head", default="fp32", choices=["fp32", "bf16"])
parser.add_argument("--mixed", action="store_true")
parser.add_argument("--packed", action="store_true")
parser.add_argument("--reps", type=int, default=1, help="timed runs, a line each, after one start")
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)
torch.set_float32_matmul_precision("highest")
device = torch.device(args.device)
is_cuda = device.type == "cuda"
compute = torch.bfloat16 if is_cuda else torch.float32
L, D, H, KV, FF, V, S, B = (
    args.layers, args.dim, args.heads, args.kv_heads, args.ffn, args.vocab, args.seq, args.batch,
)  # fmt: skip
HD, EPSILON, IGNORED = D // H, 1e-5, -100


def weights():
    w = lambda a, b: torch.randn(a, b, device=device) * 0.02
    n = lambda: torch.ones(D, device=device)
    layers = [
        dict(n1=n(), qkv=w((H + 2 * KV) * HD, D), o=w(D, H * HD), n2=n(), gu=w(2 * FF, D), d=w(D, FF)) for _ in range(L)
    ]
    return dict(embedding=w(V, D), layers=layers, norm=n(), head=w(V, D))


def flat(w):
    return [w["embedding"], *(t for layer in w["layers"] for t in layer.values()), w["norm"], w["head"]]


def cast(w):
    to = lambda t: t.to(compute)
    layers = [{name: to(t) for name, t in layer.items()} for layer in w["layers"]]
    return dict(embedding=to(w["embedding"]), layers=layers, norm=to(w["norm"]), head=to(w["head"]))


def rope(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def forward(w, ids, cosine, sine, mask=None):
    b, s = ids.shape
    x = F.embedding(ids, w["embedding"])
    for layer in w["layers"]:
        qkv = F.linear(F.rms_norm(x, (D,), layer["n1"], EPSILON), layer["qkv"]).view(b, s, H + 2 * KV, HD)
        qk = rope(qkv[..., : H + KV, :], cosine, sine)
        q, k, v = (t.transpose(1, 2) for t in (qk[..., :H, :], qk[..., H:, :], qkv[..., H + KV :, :]))
        if mask is None:
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != KV)
        else:
            a = flex_attention(q, k, v, block_mask=mask, enable_gqa=H != KV)
        x = x + F.linear(a.transpose(1, 2).reshape(b, s, H * HD), layer["o"])
        gate, up = F.linear(F.rms_norm(x, (D,), layer["n2"], EPSILON), layer["gu"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, layer["d"])
    hidden = F.rms_norm(x, (D,), w["norm"], EPSILON)
    if args.head == "fp32":
        return F.linear(hidden.float(), w["head"].float())
    return F.linear(hidden, w["head"]).float()


def main():
    w = weights()
    parameters = flat(w)
    for p in parameters:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-15, weight_decay=0.01, fused=True)
    lengths = [max(2, S * ((i * 37 % 64 + 1) if args.mixed else 64) // 64) for i in range(B)]
    width = sum(lengths) if args.packed else max(lengths)
    angles = torch.outer(
        torch.cat([torch.arange(n) for n in lengths]).to(device, torch.float32)
        if args.packed
        else torch.arange(width, device=device, dtype=torch.float32),
        10000.0 ** (-torch.arange(0, HD, 2, device=device, dtype=torch.float32) / HD),
    ).unsqueeze(1)
    cosine, sine = angles.cos().to(compute), angles.sin().to(compute)
    batch = torch.randint(V, (1 if args.packed else B, width + 1), device=device)
    ids, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    mask = None
    if args.packed:
        document = torch.repeat_interleave(torch.arange(B), torch.tensor(lengths)).to(device)
        is_seen = lambda b, h, query, key: (document[query] == document[key]) & (query >= key)
        mask = create_block_mask(is_seen, None, None, width, width, device=device, _compile=True)
    else:
        for row, length in enumerate(lengths):
            targets[row, length:] = IGNORED
    targets = targets.view(-1)

    def loss_of(ids, targets):
        logits = forward(w if compute == torch.float32 else cast(w), ids, cosine, sine, mask)
        return F.cross_entropy(logits.view(-1, V), targets, ignore_index=IGNORED)

    function = torch.compile(loss_of) if args.mode == "compile" else loss_of

    def step():
        loss = function(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    synchronize = torch.cuda.synchronize if is_cuda else lambda: None
    started = time.perf_counter()
    step()
    synchronize()
    setup = time.perf_counter() - started
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(args.warmup):
        step()
    synchronize()
    for _ in range(args.reps):
        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(args.steps):
            loss = step()
        synchronize()
        seconds = (time.perf_counter() - started) / args.steps
        cpu = (time.process_time() - cpu) / args.steps
        count, tokens = sum(p.numel() for p in parameters), sum(lengths)
        operations = 6 * count * tokens + 6 * L * D * sum(n * n for n in lengths)
        peak = torch.cuda.max_memory_allocated() if is_cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(
            f"train torch-{torch.__version__} mode={args.mode} head={args.head} {'packed ' if args.packed else ''}params={count/1e6:.1f}M tokens/step={tokens} "
            f"ms/step={seconds*1e3:.2f} tokens/s={tokens/seconds:.0f} TFLOP/s={operations/seconds/1e12:.2f} "
            f"peak={peak/1e9:.2f}GB loss={loss.item():.4f} setup_s={setup:.1f} cpu_ms/step={cpu*1e3:.1f}"
        )


main()
