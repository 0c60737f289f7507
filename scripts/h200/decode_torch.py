#!/usr/bin/env python3
"""The PyTorch side of `scalerl bench decode`: the same shape, batch and lengths, FP32 logits, drawn tokens.

  decode_torch.py --mode eager          plain PyTorch, keys and values in one block per sequence
  decode_torch.py --mode compile-graph  torch.compile of the whole step, as a CUDA graph
  decode_torch.py --mode hf             transformers' generate() with a static cache

Equal lengths: --batch sequences, --prompt + --new tokens each. Mixed lengths (--fewest): eight batches' worth of
requests with lengths spread between --fewest and --new, in the order of scalerl bench decode, taken --batch at a time; a
batch runs until its longest is done, because a block per sequence has no room for the next. Only wanted tokens count.
--batches N takes the first N batches only: every batch runs to its longest, so the rate does not depend on how many there are.
"""
import argparse
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
sizes = dict(layers=4, dim=128, heads=4, kv_heads=2, ffn=384, vocab=512, batch=64, prompt=32, new=256, fewest=0, batches=0, reps=3, threads=0)
for name, default in sizes.items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--mode", default="eager", choices=["eager", "compile-graph", "hf"])
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)
device = torch.device(args.device)
is_cuda = device.type == "cuda"
kind = torch.bfloat16 if is_cuda else torch.float32
L, D, H, KV, FF, V, B = args.layers, args.dim, args.heads, args.kv_heads, args.ffn, args.vocab, args.batch
W, EPS = D // H, 1e-5


def wait():
    if is_cuda:
        torch.cuda.synchronize()


def lengths():
    if not args.fewest:
        return [args.new] * B
    count, spread = 8 * B, args.new - args.fewest
    wanted = [args.fewest + spread * (i * 37 % count) // max(count - 1, 1) for i in range(count)]
    return wanted[: args.batches * B] if args.batches else wanted


def weights():
    matrix = lambda a, b: (torch.randn(a, b, device=device) * 0.02).to(kind)
    ones = lambda: torch.ones(D, device=device, dtype=kind)
    layers = [
        dict(n1=ones(), qkv=matrix((H + 2 * KV) * W, D), o=matrix(D, H * W), n2=ones(), up=matrix(2 * FF, D), down=matrix(D, FF))
        for _ in range(L)
    ]
    return dict(embedding=matrix(V, D), layers=layers, norm=ones(), head=matrix(V, D))


def logits(w, x):
    x = F.rms_norm(x, (D,), w["norm"], EPS)
    # FP32 logits, as scalerl's default head gives: float32 sums and output of a bf16 product.
    return torch.mm(x, w["head"].t(), out_dtype=torch.float32) if is_cuda else x @ w["head"].t()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def project(x, l, cos, sin):
    qkv = F.linear(F.rms_norm(x, (D,), l["n1"], EPS), l["qkv"]).view(*x.shape[:-1], H + 2 * KV, W)
    qk = rotate(qkv[..., : H + KV, :], cos, sin)
    return qk[..., :H, :], qk[..., H:, :], qkv[..., H + KV :, :]


def feed_forward(x, l):
    gate, up = F.linear(F.rms_norm(x, (D,), l["n2"], EPS), l["up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, l["down"])


def sample(rows):
    return (rows - torch.empty_like(rows).exponential_(1.0).log()).argmax(-1)


class Static:
    """Block cache of `total` tokens for each of B sequences."""

    def __init__(self, total):
        self.total = (total + 7) // 8 * 8
        self.w = weights()
        empty = lambda: torch.zeros(B, KV, self.total, W, device=device, dtype=kind)
        self.keys, self.values = [empty() for _ in range(L)], [empty() for _ in range(L)]
        frequency = 10000.0 ** (-torch.arange(0, W, 2, device=device, dtype=torch.float32) / W)
        angle = torch.outer(torch.arange(self.total, device=device, dtype=torch.float32), frequency).unsqueeze(1)
        self.cos, self.sin = angle.cos().to(kind), angle.sin().to(kind)
        self.position = torch.zeros(1, device=device, dtype=torch.long)
        self.token = torch.zeros(B, device=device, dtype=torch.long)
        self.range = torch.arange(self.total, device=device)

    def prefill(self, ids):
        b, s = ids.shape
        x = F.embedding(ids, self.w["embedding"])
        for i, l in enumerate(self.w["layers"]):
            q, k, v = (t.transpose(1, 2) for t in project(x, l, self.cos[:s], self.sin[:s]))
            self.keys[i][:, :, :s].copy_(k)
            self.values[i][:, :, :s].copy_(v)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != KV)
            x = feed_forward(x + F.linear(a.transpose(1, 2).reshape(b, s, H * W), l["o"]), l)
        self.token.copy_(sample(logits(self.w, x[:, -1])))
        self.position.fill_(s)

    def step_eager(self, t):
        x = F.embedding(self.token, self.w["embedding"])
        for i, l in enumerate(self.w["layers"]):
            q, k, v = project(x, l, self.cos[t], self.sin[t])
            self.keys[i][:, :, t].copy_(k)
            self.values[i][:, :, t].copy_(v)
            q = q.reshape(B, KV, H // KV, W)
            a = F.scaled_dot_product_attention(q, self.keys[i][:, :, : t + 1], self.values[i][:, :, : t + 1])
            x = feed_forward(x + F.linear(a.reshape(B, H * W), l["o"]), l)
        self.token.copy_(sample(logits(self.w, x)))

    def step_on_device(self, n):
        """Looks at the first `n` positions, behind a mask, so that a graph can hold it."""
        cos, sin = self.cos.index_select(0, self.position).squeeze(0), self.sin.index_select(0, self.position).squeeze(0)
        mask = torch.zeros(n, device=device, dtype=kind).masked_fill(self.range[:n] > self.position, float("-inf"))
        mask = mask.view(1, 1, 1, n).expand(B, KV, H // KV, n)
        x = F.embedding(self.token, self.w["embedding"])
        for i, l in enumerate(self.w["layers"]):
            q, k, v = project(x, l, cos, sin)
            self.keys[i].index_copy_(2, self.position, k.unsqueeze(2))
            self.values[i].index_copy_(2, self.position, v.unsqueeze(2))
            q = q.reshape(B, KV, H // KV, W)
            a = F.scaled_dot_product_attention(q, self.keys[i][:, :, :n], self.values[i][:, :, :n], attn_mask=mask)
            x = feed_forward(x + F.linear(a.reshape(B, H * W), l["o"]), l)
        self.token.copy_(sample(logits(self.w, x)))
        self.position.add_(1)

    def graphs(self):
        """One graph per 256 positions: the fairest that static shapes allow."""
        step, made = torch.compile(self.step_on_device, dynamic=False), []
        for n in [min(n, self.total) for n in range(256, self.total + 256, 256)]:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.position.zero_()
                    step(n)
            torch.cuda.current_stream().wait_stream(side)
            self.position.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step(n)
            made.append((n, graph))
        return made


@torch.no_grad()
def static():
    model = Static(args.prompt + args.new)
    begun = time.perf_counter()
    graphs = model.graphs() if args.mode == "compile-graph" else []
    setup = time.perf_counter() - begun
    wanted = lengths()
    batches = [wanted[i : i + B] for i in range(0, len(wanted), B)]
    ids = torch.randint(V, (B, args.prompt), device=device)
    best = None
    for repetition in range(args.reps + 1):
        wait()
        begun, prefill, steps = time.perf_counter(), 0.0, 0
        for batch in batches:
            before = time.perf_counter()
            model.prefill(ids)
            wait()
            prefill += time.perf_counter() - before
            for t in range(args.prompt, args.prompt + max(batch) - 1):
                if graphs:
                    next(graph for n, graph in graphs if t < n).replay()
                else:
                    model.step_eager(t)
                steps += 1
        wait()
        seconds = time.perf_counter() - begun
        if repetition and (best is None or seconds < best[0]):
            best = (seconds, prefill, steps)
    seconds, prefill, steps = best
    tokens = sum(wanted)
    report(f"torch-{torch.__version__}", seconds, prefill, steps, tokens, setup)


@torch.no_grad()
def hf():
    import transformers
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=D, intermediate_size=FF, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=KV, vocab_size=V,
        max_position_embeddings=131072, rms_norm_eps=EPS, tie_word_embeddings=False, bos_token_id=0, eos_token_id=None,
        pad_token_id=0, attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).to(device=device, dtype=kind).eval()
    ids = torch.randint(V, (B, args.prompt), device=device)
    wanted = lengths()
    batches = [wanted[i : i + B] for i in range(0, len(wanted), B)]

    def run(batches):
        for batch in batches:
            model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=max(batch), min_new_tokens=max(batch), do_sample=True,
                top_k=0, top_p=1.0, cache_implementation="static", eos_token_id=None, pad_token_id=0, disable_compile=True,
            )
        wait()

    run([[16]])
    best = float("inf")
    for _ in range(max(1, args.reps - 1)):
        begun = time.perf_counter()
        run(batches)
        best = min(best, time.perf_counter() - begun)
    report(f"transformers-{transformers.__version__}", best, 0.0, sum(max(batch) for batch in batches), sum(wanted), 0.0)


def report(name, seconds, prefill, steps, tokens, setup):
    peak = torch.cuda.max_memory_allocated() / 1e9 if is_cuda else 0.0
    span = f"{args.fewest}-{args.new}" if args.fewest else str(args.new)
    first = len(lengths())
    print(
        f"decode {name} mode={args.mode} batch={B} requests={first} prompt={args.prompt} new={span} ms/step={(seconds - prefill) / steps * 1e3:.3f} "
        f"new_tokens/s={(tokens - first) / (seconds - prefill):.0f} (with prefill: {tokens / seconds:.0f}) prefill_ms={prefill * 1e3:.1f} "
        f"setup_s={setup:.1f} peak={peak:.2f}GB"
    )


hf() if args.mode == "hf" else static()
