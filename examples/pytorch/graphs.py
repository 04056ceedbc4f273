"""Captures a training step as a CUDA graph and replays it."""
import torch

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 128, device="cuda"), torch.randint(0, 10, (64,), device="cuda")


def step():
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimiser.step()
    return loss


aside = torch.cuda.Stream()
aside.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(aside):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(aside)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for i in range(10):
    x.copy_(torch.randn(64, 128, generator=torch.Generator().manual_seed(i)))
    graph.replay()
    print(f"replay {i}: {loss.item():.6f}")
square = torch.cuda.make_graphed_callables(torch.nn.Linear(16, 16).cuda(), (torch.randn(4, 16, device="cuda"),))
print("graphed:", square(torch.ones(4, 16, device="cuda")).shape)
