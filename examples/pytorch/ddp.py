"""DistributedDataParallel: two processes, gloo between them, or NCCL.

    ddp.py gloo|nccl [PROCESSES]
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size, backend, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend, rank=rank, world_size=size)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 4).cuda())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(16, 32, generator=torch.Generator().manual_seed(rank)).cuda()
    for step in range(5):
        loss = (model(x) - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step}: {loss.item() / size:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    backend, size = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    mp.spawn(work, args=(size, backend, 29500 + os.getpid() % 1000), nprocs=size)
