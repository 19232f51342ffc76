"""One rank of PyTorch over gloo: allreduce, or DDP with a hook.

    torch_rank.py KIND SIZES.json WARMUP ITERATIONS

KIND: gloo, ddp, ddp_fp16, powersgd; ddp_alone is DDP with a hook that sends nothing:
what DDP itself takes, in all of its rows; telegrad:CODEC[:REPLY] is DDP with
telegrad.torch, which listens on TELEGRAD_BIND; horovod:CODEC[:REPLY] is an optimizer of
telegrad.horovod.torch with compression=CODEC. MASTER_ADDR, RANK ... as torchrun sets
them. The model hands over ready-made gradients, so that communication and the hook alone
are timed.
Rank 0 prints {"seconds": [...], "sent_bytes": of all hosts in a timed step}.
"""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from host_links import sent_bytes


class ReadyGradients(torch.autograd.Function):
    """Hands over the gradients as they are."""

    @staticmethod
    def forward(ctx, gradients, *parameters):
        ctx.gradients = gradients
        return torch.zeros((), requires_grad=True)

    @staticmethod
    def backward(ctx, _):
        return (None, *ctx.gradients)


class Model(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.gradients = [torch.rand(shape) for shape in sizes]
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(shape)) for shape in sizes)

    def forward(self):
        return ReadyGradients.apply(self.gradients, *self.weights)


def sends_nothing(_, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def ddp_step(kind, sizes):
    one_bucket = kind == "powersgd"
    if one_bucket:  # hooks that chain collectives need one order of buckets
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 40
    ddp = DistributedDataParallel(
        Model(sizes), gradient_as_bucket_view=True,
        bucket_cap_mb=1 << 20 if one_bucket else 25)
    if kind == "ddp_fp16":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if kind == "ddp_alone":
        ddp.register_comm_hook(None, sends_nothing)
    if kind.startswith("telegrad:"):
        import telegrad.torch
        codec, _, reply = kind.partition(":")[2].partition(":")
        telegrad.torch.compress(ddp, codec, reply=reply or "auto", verbose=False,
                                bind=os.environ["TELEGRAD_BIND"])
    if one_bucket:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return lambda: ddp().backward()


def horovod_step(kind, sizes):
    """What DistributedOptimizer.synchronize takes of gradients that are there: an
    operation of each, all under way at once, as backward has them: the last first."""
    meet_elsewhere()
    import telegrad.horovod.torch as hvd
    hvd.init()
    model = Model(sizes)
    named = list(model.named_parameters())[::-1]
    _, codec, *reply = kind.split(":")
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([p for _, p in named], lr=0.0), named, op=hvd.Sum,
        compression=hvd.Compression.codec(codec, **dict(zip(["reply"], reply)))
        if codec != "none" else hvd.Compression.none)
    for _, p in named:
        p.grad = torch.empty_like(p)

    def step():
        for (_, p), gradient in zip(named, model.gradients[::-1]):
            p.grad.copy_(gradient)
        dist.barrier()
        start = time.perf_counter()
        optimizer.synchronize()
        return time.perf_counter() - start
    return step


def meet_elsewhere():
    """torch's store has MASTER_PORT already."""
    with socket.socket() as probe:
        probe.bind((os.environ["TELEGRAD_BIND"], 0))
        port = torch.tensor([probe.getsockname()[1]])
    dist.broadcast(port, 0)
    os.environ["MASTER_PORT"] = str(port.item())


def allreduce_step(sizes):
    count = sum(torch.Size(shape).numel() for shape in sizes)
    data = torch.ones(count)

    def step():
        data.fill_(1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        seconds = time.perf_counter() - start
        assert data[0] == dist.get_world_size() == data[-1]
        return seconds
    return step


def main():
    kind, sizes, warmup, iterations = sys.argv[1:]
    with open(sizes, encoding="utf-8") as file:
        sizes = json.load(file)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if kind == "gloo":
        step = allreduce_step(sizes)
    else:
        step = (horovod_step if kind.startswith("horovod:") else ddp_step)(kind, sizes)
    seconds = []
    for i in range(int(warmup) + int(iterations)):
        dist.barrier()
        if i == int(warmup):
            sent = -sent_bytes()
        start = time.perf_counter()
        inner = step()
        took = inner if inner is not None else time.perf_counter() - start
        slowest = torch.tensor([took])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if i >= int(warmup):
            seconds.append(slowest.item())
    sent = torch.tensor([sent + sent_bytes()])
    dist.all_reduce(sent)
    sent //= int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # who saw the same host
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": seconds, "sent_bytes": sent.item() / len(seconds)}),
              flush=True)


if __name__ == "__main__":
    main()
