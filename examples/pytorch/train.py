"""Trains a small transformer with a fused optimiser and prints the losses."""
import torch
import torch.nn as nn

torch.manual_seed(1)
device = "cuda"


class Model(nn.Module):
    def __init__(self, words=256, width=128, heads=4, layers=2, length=64):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, words)

    def forward(self, x):
        n = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=x.device)
        h = self.word(x) + self.place(torch.arange(n, device=x.device))
        return self.out(self.layers(h, mask=mask, is_causal=True))


model = Model().to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
data = torch.randint(0, 256, (64, 65), generator=torch.Generator().manual_seed(2)).to(device)
for step in range(20):
    batch = data[torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(step))]
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    print(f"step {step}: {loss.item():.6f}")
with torch.autocast("cuda", dtype=torch.bfloat16):
    q = torch.randn(2, 4, 128, 64, device=device)
    print(f"attention: {nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).float().sum().item():.3f}")
