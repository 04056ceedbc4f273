"""How long a step of training takes, for models of three sizes: a line of JSON for each.

    python3 steps.py [tiny] [11M] [124M]

The loss is read in each step, as programs do that print it."""
import json
import statistics
import sys
import time

import torch
import torch.nn as nn

SIZES = {  # words, width, heads, layers, length, batch
    "tiny": (256, 64, 2, 2, 64, 16),
    "11M": (256, 384, 6, 6, 256, 32),
    "124M": (50304, 768, 12, 12, 512, 16),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = (t.view(b, n, self.heads, w // self.heads).transpose(1, 2) for t in self.qkv(self.first(x)).split(w, 2))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, w))
        return x + self.wide(self.second(x))


class Model(nn.Module):
    def __init__(self, words, width, heads, layers, length):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.out = nn.Linear(width, words, bias=False)
        self.out.weight = self.word.weight

    def forward(self, x):
        return self.out(self.layers(self.word(x) + self.place(torch.arange(x.shape[1], device=x.device))))


def measure(size, warm=8, rounds=25):
    words, width, heads, layers, length, batch = SIZES[size]
    torch.manual_seed(1)
    model = Model(words, width, heads, layers, length).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = torch.randint(0, words, (4, batch, length + 1), generator=torch.Generator().manual_seed(2)).cuda()
    times = []
    for step in range(warm + rounds):
        start = time.perf_counter()
        x = data[step % 4]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        value = loss.item()
        if step >= warm:
            times.append((time.perf_counter() - start) * 1e3)
    print(f"{size}: loss {value:.6f} after {warm + rounds} steps", file=sys.stderr)
    print(json.dumps({"name": f"training step, {size}", "unit": "ms", "median": round(statistics.median(times), 3), "least": round(min(times), 3), "most": round(max(times), 3), "rounds": rounds}), flush=True)


for name in sys.argv[1:] or SIZES:
    measure(name)
