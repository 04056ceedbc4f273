"""The profiler: with what the host does, and with the GPU's events where there are any."""
import torch
from torch.profiler import ProfilerActivity, profile

x = torch.randn(256, 256, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
    for _ in range(3):
        y = (x @ x).relu().sum()
    torch.cuda.synchronize()
names = {e.key for e in p.key_averages()}
print("profiled:", "aten::mm" in names, "aten::relu" in names)
