#!/usr/bin/env python3
"""Trains a small network as a script of Horovod's does; it knows nothing of Telegrad.

    telegrad-launch -n 2 -- python3 -m telegrad.run --horovod --gc-type int2 horovod_mnist.py

The data are random numbers, so that nothing is fetched.
"""
import argparse

import torch
import torch.nn.functional as F

import horovod.torch as hvd


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.01, help="of one rank")
    parser.add_argument("--fp16-allreduce", action="store_true")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 100),
                                torch.nn.ReLU(), torch.nn.Linear(100, 10))
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
        model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression)

    torch.manual_seed(hvd.rank())
    images = torch.randn(256, 1, 28, 28)
    labels = images[:, 0, 0, :10].argmax(1)
    device = next(model.parameters()).device
    for step in range(options.steps):
        pick = torch.randint(len(images), (32,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[pick].to(device)), labels[pick].to(device))
        loss.backward()
        optimizer.step()
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {options.steps} steps, loss {mean:.3f}")


if __name__ == "__main__":
    main()
