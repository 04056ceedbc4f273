"""Streams, events with times, pinned copies, and what the allocator says of memory.

Run it also with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and backend:cudaMallocAsync.
"""
import torch

torch.manual_seed(1)
print(torch.cuda.device_count() > 0, torch.cuda.get_device_capability() >= (7, 0), torch.cuda.is_bf16_supported())
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
one, two = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
x = torch.randn(1024, 1024, device="cuda")
torch.cuda.synchronize()
begin.record()
with torch.cuda.stream(one):
    one.wait_event(begin)
    y = x @ x
    done = one.record_event()
with torch.cuda.stream(two):
    two.wait_event(done)
    z = y.relu().sum()
torch.cuda.current_stream().wait_stream(two)
end.record()
end.synchronize()
print("times:", 0 < begin.elapsed_time(end) < 60000, torch.allclose(z, (x @ x).relu().sum()))
host = torch.randn(1 << 20).pin_memory()
back = torch.empty_like(host).pin_memory()
back.copy_(host.cuda(non_blocking=True), non_blocking=True)
torch.cuda.synchronize()
print("pinned:", torch.equal(host, back), host.is_pinned())
blocks = [torch.full((1 << 18,), float(i), device="cuda") for i in range(64)]
print("blocks:", sum(b[0].item() for b in blocks))
del blocks[::2]
big = torch.ones(1 << 24, device="cuda")
print("memory:", torch.cuda.memory_allocated() >= 1 << 26, torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated())
del blocks, big
torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
print("free:", 0 < free <= total, torch.ones(10, device="cuda").sum().item())
try:
    torch.empty(1 << 50, device="cuda", dtype=torch.uint8)
except torch.OutOfMemoryError as e:
    print("refused:", "out of memory" in str(e))
print("again:", torch.ones(10, device="cuda").sum().item())
