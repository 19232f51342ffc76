#!/usr/bin/env python3
"""LeNet on MNIST by PyTorch's DistributedDataParallel; it knows nothing of Telegrad.

    torchrun --nproc_per_node 2 examples/ddp_mnist.py DIR
    torchrun --nproc_per_node 2 -m telegrad.run --gc-type 2bit examples/ddp_mnist.py DIR

DIR has MNIST's four files, as `telegrad-train --data mnist:DIR` takes them. Two epochs,
batches of 64 for each rank, momentum SGD, a tenth of the rate in the second epoch. Rank 0
prints the share of the test set that is right.
"""
import argparse
import gzip
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64


def read_bytes(folder, name, head):
    """Behind the head of a file that may be compressed, [n] uint8."""
    path = os.path.join(folder, name)
    with open(path, "rb") if os.path.isfile(path) else gzip.open(path + ".gz") as file:
        return torch.frombuffer(bytearray(file.read()[head:]), dtype=torch.uint8)


def read(folder, part):
    """Images [n, 1, 28, 28] of mean 0 and deviation 1, and labels [n]."""
    pixels = read_bytes(folder, f"{part}-images-idx3-ubyte", 16)
    images = (pixels.float().reshape(-1, 1, 28, 28) / 255 - 0.1307) / 0.3081
    return images, read_bytes(folder, f"{part}-labels-idx1-ubyte", 8).long()


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10))


def train(model, images, labels, options):
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(2):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(
            1000 * options.seed + epoch))
        steps = len(images) // (BATCH * world)
        for step in range(steps):
            at = (step * world + rank) * BATCH
            chosen = order[at:at + BATCH]
            optimizer.zero_grad()
            loss_of(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(lenet())
    train(model, *read(options.folder, "train"), options)
    images, labels = read(options.folder, "t10k")
    if dist.get_rank() == 0:
        with torch.no_grad():
            right = (model.module(images).argmax(1) == labels).float().mean()
        print(f"test accuracy {100 * float(right):.2f} %", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
