"""torch.compile: kernels that Triton makes while the program runs."""
import torch

torch.manual_seed(1)


@torch.compile
def f(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w) * 2 + x.sum(dim=1, keepdim=True), dim=1)


def plain(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w) * 2 + x.sum(dim=1, keepdim=True), dim=1)


x, w = torch.randn(512, 256, device="cuda"), torch.randn(256, 256, device="cuda")
got, want = f(x, w), plain(x, w)
print("compiled:", torch.allclose(got, want, rtol=1e-3, atol=1e-5))
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda())
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
data = torch.randn(256, 64, device="cuda")
for step in range(5):
    loss = (model(data) - data[:, :8]).square().mean()
    loss.backward()
    optimiser.step()
    optimiser.zero_grad()
    print(f"step {step}: {loss.item():.5f}")
