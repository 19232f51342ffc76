"""One rank of a training of PyTorch's DDP over gloo: a ReLU network on MNIST.

    torch_train.py KIND LAYERS MNIST_DIR BATCH LR SEED EPOCH_STEPS EPOCHS TARGET

KIND: float32, or fp16 for DDP's own hook. LAYERS: 4096,4096. MASTER_ADDR, RANK ... as
torchrun sets them. SGD with momentum 0.9 and weight decay 1e-4. After each EPOCH_STEPS
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


def idx(folder, name):
    path = os.path.join(folder, name)
    opened = open(path, "rb") if os.path.isfile(path) else gzip.open(path + ".gz")
    with opened as file:
        data = numpy.frombuffer(file.read(), dtype=numpy.uint8)
    return data[16:].reshape(-1, 784) if "images" in name else data[8:]


def loaded(folder, what, mean=None, deviation=None):
    images = torch.tensor(idx(folder, what + "-images-idx3-ubyte")).float() / 255
    if mean is None:
        mean, deviation = images.mean(), images.std()
    labels = torch.tensor(idx(folder, what + "-labels-idx1-ubyte")).long()
    return (images - mean) / deviation, labels, mean, deviation


def network(layers):
    """With the trainer's initial values: He's, uniform; Xavier's in the last layer."""
    widths, parts = [784, *layers, 10], []
    for rows, columns in zip(widths, widths[1:]):
        layer = torch.nn.Linear(rows, columns)
        torch.nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        torch.nn.init.zeros_(layer.bias)
        parts += [layer, torch.nn.ReLU()]
    torch.nn.init.xavier_uniform_(layer.weight)
    return torch.nn.Sequential(*parts[:-1])


def accuracy_of(model, images, labels):
    with torch.no_grad():
        hits = sum((model(images[i:i + 1000]).argmax(1) == labels[i:i + 1000]).sum()
                   for i in range(0, len(labels), 1000))
    return hits.item() / len(labels)


def shares(count, batch, seed):
    """The samples of this rank's batches: all ranks shuffle alike, and take turns."""
    order = torch.Generator().manual_seed(seed)
    rank, world = dist.get_rank(), dist.get_world_size()
    while True:
        samples = torch.randperm(count, generator=order)[rank::world]
        yield from samples[:len(samples) // batch * batch].split(batch)


def main():
    kind, layers, folder, batch, lr, *numbers, target = sys.argv[1:]
    batch, lr = int(batch), float(lr)
    seed, epoch_steps, epochs = map(int, numbers)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dist.init_process_group("gloo")
    images, labels, mean, deviation = loaded(folder, "train")
    tests = loaded(folder, "t10k", mean, deviation)[:2]
    model = network([int(n) for n in layers.split(",")])
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
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
