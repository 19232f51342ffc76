"""One rank of a training of PyTorch's DDP over gloo.

    torch_train.py KIND NETWORK DATA BATCH LR SEED EPOCH_STEPS EPOCHS TARGET

KIND: float32, or a hook of DDP's own: fp16, powersgd (of rank 2, after 10 steps). Its bf16 hook,
whose bytes are fp16's, wants CUDA and NCCL. NETWORK and DATA are those of telegrad-train:
mlp:4096,4096 on mnist:DIR, vgg11:maps=16 on cifar10:DIR. MASTER_ADDR, RANK ... are as torchrun sets
them. SGD with momentum 0.9 and weight decay 1e-4. After each EPOCH_STEPS
steps rank 0 takes the accuracy on the test set, which is not timed, and ends the training
where it is TARGET. It prints {"seconds", "steps", "sent_bytes": of its host in a step, "accuracy":
[[step, s, accuracy], ...]}; seconds and steps are null where TARGET was not reached.
"""
import gzip
import json
import os
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                "side_by_side"))

from host_links import sent_bytes  # noqa: E402


def idx(path, header):
    opened = open(path, "rb") if os.path.isfile(path) else gzip.open(path + ".gz")
    with opened as file:
        return numpy.frombuffer(file.read(), dtype=numpy.uint8)[header:]


def mnist(folder, is_test):
    stem = os.path.join(folder, "t10k" if is_test else "train")
    return (idx(stem + "-images-idx3-ubyte", 16).reshape(-1, 784),
            idx(stem + "-labels-idx1-ubyte", 8))


def cifar10(folder, is_test):
    names = ["test_batch"] if is_test else [f"data_batch_{i}" for i in range(1, 6)]
    records = numpy.concatenate([idx(os.path.join(folder, name + ".bin"), 0)
                                 for name in names]).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def loaded(data):
    """Images and labels of the training set, then of the test set, of mean 0 and deviation 1."""
    kind, folder = data.split(":", 1)
    read = {"mnist": mnist, "cifar10": cifar10}[kind]
    sets = [(torch.tensor(images).float() / 255, torch.tensor(labels).long())
            for images, labels in (read(folder, False), read(folder, True))]
    mean, deviation = sets[0][0].mean(), sets[0][0].std()
    return [part for images, labels in sets for part in ((images - mean) / deviation, labels)]


def network(name):
    """With the trainer's initial values: He's, uniform; Xavier's in the last layer."""
    kind, options = name.split(":", 1)
    parts, width = [], 784
    if kind == "mlp":
        for units in map(int, options.split(",")):
            parts += [torch.nn.Linear(width, units), torch.nn.ReLU()]
            width = units
    else:  # vgg11 of small images, which trainer/networks/plain.cc has
        maps, width = int(options.split("=")[1]), 3
        for times, repeats in (1, 1), (2, 1), (4, 2), (8, 2), (8, 2):
            for _ in range(repeats):
                parts += [torch.nn.Conv2d(width, times * maps, 3, padding=1, bias=False),
                          torch.nn.BatchNorm2d(times * maps), torch.nn.ReLU()]
                width = times * maps
            parts.append(torch.nn.MaxPool2d(2))
        parts.append(torch.nn.Flatten())
    parts.append(torch.nn.Linear(width, 10))
    for part in parts:
        if isinstance(part, (torch.nn.Linear, torch.nn.Conv2d)):
            torch.nn.init.kaiming_uniform_(part.weight, nonlinearity="relu")
        if isinstance(part, torch.nn.Linear):
            torch.nn.init.zeros_(part.bias)
    torch.nn.init.xavier_uniform_(parts[-1].weight)
    return torch.nn.Sequential(*parts)


def register_hook(ddp, kind):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    if kind == "powersgd":
        def in_turn(state, bucket):
            """Its callbacks start collectives of several buckets in any order, which gloo mixes up."""
            future = powerSGD_hook.powerSGD_hook(state, bucket)
            future.wait()
            return future

        ddp.register_comm_hook(powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=10), in_turn)
    elif kind == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)


def accuracy_of(model, images, labels):
    model.eval()
    with torch.no_grad():
        hits = sum((model(images[i:i + 1000]).argmax(1) == labels[i:i + 1000]).sum()
                   for i in range(0, len(labels), 1000))
    model.train()
    return hits.item() / len(labels)


def shares(count, batch, seed):
    """The samples of this rank's batches: all ranks shuffle alike, and take turns."""
    order = torch.Generator().manual_seed(seed)
    rank, world = dist.get_rank(), dist.get_world_size()
    while True:
        samples = torch.randperm(count, generator=order)[rank::world]
        yield from samples[:len(samples) // batch * batch].split(batch)


def main():
    kind, name, data, batch, lr, *numbers, target = sys.argv[1:]
    batch, lr = int(batch), float(lr)
    seed, epoch_steps, epochs = map(int, numbers)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dist.init_process_group("gloo")
    images, labels, *tests = loaded(data)
    model = network(name)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    register_hook(ddp, kind)
    optimizer = torch.optim.SGD(ddp.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    batches = shares(len(labels), batch, seed)
    seconds, reached, curve, before = 0.0, None, [], sent_bytes()
    for epoch in range(epochs):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(epoch_steps):
            mine = next(batches)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(ddp(images[mine]), labels[mine]).backward()
            optimizer.step()
        seconds += time.perf_counter() - start
        result = torch.tensor([accuracy_of(model, *tests) if dist.get_rank() == 0 else 0.])
        dist.broadcast(result, 0)
        curve.append([(epoch + 1) * epoch_steps, seconds, result.item()])
        if result.item() >= float(target):
            reached = curve[-1]
            break
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": reached and reached[1], "steps": reached and reached[0],
                          "sent_bytes": (sent_bytes() - before) / curve[-1][0],
                          "accuracy": curve}), flush=True)


if __name__ == "__main__":
    main()
