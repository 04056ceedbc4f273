"""Trains a CNN in mixed precision, with data from worker processes through pinned memory."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 32, 32, generator=g) + i % 10 / 5, i % 10


def main():
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).cuda().to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler()
    loader = DataLoader(Pictures(), batch_size=64, num_workers=2, pin_memory=True, persistent_workers=True)
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            x, y = x.cuda(non_blocking=True).to(memory_format=torch.channels_last), y.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            print(f"epoch {epoch} step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
