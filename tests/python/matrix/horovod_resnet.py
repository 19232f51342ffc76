#!/usr/bin/env python3
"""Trains ResNet-50 v1b in MXNet on two ranks, synthetic images, by Horovod's interface under
`telegrad.run --horovod` and by MXNet's own dist_sync; compares the weights.

    horovod_resnet.py [--steps 4] [--batch 4] [--size 32] [--codec int2]

With the Python of an environment that has MXNet 1.9.1 (matrix.py makes one), PYTHONPATH and
TELEGRAD_LIBRARY as for the tests. Ends with 1 where weights differ by more than rounding; with
--codec nothing is compared but the ranks.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import workers

NUM_RANKS = 2
SEED = 7
# Sums of two numbers do not depend on their order, and a mean of two is exact: what differs is
# the rounding of the rescaled step, carried through a few steps of batch norms.
MOST = 1e-5


def bottleneck(nn, channels, stride, in_channels):
    """Of v1b: the stride is in the 3x3 convolution."""
    body, short = nn.HybridSequential(), None
    for kernel, width, step in ((1, channels // 4, 1), (3, channels // 4, stride),
                                (1, channels, 1)):
        body.add(nn.Conv2D(width, kernel, step, kernel // 2, use_bias=False), nn.BatchNorm())
        if width != channels or kernel == 3:
            body.add(nn.Activation("relu"))
    if stride > 1 or in_channels != channels:
        short = nn.HybridSequential()
        short.add(nn.Conv2D(channels, 1, stride, use_bias=False), nn.BatchNorm())
    return body, short


def resnet50_v1b(mx):
    nn = mx.gluon.nn

    class Unit(mx.gluon.HybridBlock):
        def __init__(self, channels, stride, in_channels):
            super().__init__()
            self.body, self.short = bottleneck(nn, channels, stride, in_channels)

        def hybrid_forward(self, F, x):
            return F.relu(self.body(x) + (self.short(x) if self.short else x))

    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, 7, 2, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
            nn.MaxPool2D(3, 2, 1))
    before = 64
    for stage, num in enumerate((3, 4, 6, 3)):
        channels = 256 << stage
        for unit in range(num):
            net.add(Unit(channels, 2 if stage and not unit else 1, before))
            before = channels
    net.add(nn.GlobalAvgPool2D(), nn.Dense(1000))
    return net


def train(options, rank, seed, make_trainer, share):
    """Prints samples a second; writes the weights that are trained."""
    import mxnet as mx
    import numpy as np
    mx.random.seed(seed)
    np.random.seed(seed)
    net = resnet50_v1b(mx)
    net.initialize(mx.init.Xavier())
    images = mx.nd.zeros((options.batch, 3, options.size, options.size))
    net(images)
    net.hybridize()
    share(net)
    trainer = make_trainer(net.collect_params(), {"learning_rate": .001, "momentum": .9,
                                                  "wd": 1e-4})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    seconds = []
    for step in range(options.steps):
        made = np.random.RandomState(NUM_RANKS * step + rank)
        x = mx.nd.array(made.standard_normal(images.shape))
        y = mx.nd.array(made.randint(0, 1000, options.batch))
        mx.nd.waitall()
        start = time.monotonic()
        with mx.autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer(options.batch)
        mx.nd.waitall()
        seconds.append(time.monotonic() - start)
    trained = [each.data().asnumpy().reshape(-1).astype("f4")
               for _, each in sorted(net._collect_params_with_prefix().items())
               if each.grad_req != "null"]
    np.save(os.path.join(options.folder, f"{options.role}.{rank}.npy"), np.concatenate(trained))
    if rank == 0:
        print(f"{options.role}: {sum(map(len, trained)):,} weights in {len(trained)} tensors, "
              f"{NUM_RANKS * options.batch / min(seconds):.2f} samples/s, loss "
              f"{loss.mean().asscalar():.4f}", flush=True)


def by_horovod(options):
    import horovod.mxnet as hvd
    hvd.init()
    more = {"compression": options.codec} if options.codec else {}

    def make_trainer(params, setting):
        trainer = hvd.DistributedTrainer(params, "sgd", setting, **more)
        return lambda batch: trainer.step(batch)

    train(options, hvd.rank(), SEED + hvd.rank(), make_trainer,
          lambda net: hvd.broadcast_parameters(net.collect_params(), root_rank=0))


def by_dist_sync(options):
    import mxnet as mx
    kv = mx.kv.create("dist_sync")

    def make_trainer(params, setting):
        trainer = mx.gluon.Trainer(params, "sgd", setting, kvstore=kv)
        return lambda batch: trainer.step(NUM_RANKS * batch)

    train(options, kv.rank, SEED, make_trainer, lambda net: None)


def start(arguments, **environment):
    return subprocess.Popen([sys.executable, "-B", *arguments],
                            env=dict(os.environ, OMP_NUM_THREADS="1", **environment))


def run(role, folder):
    own = [os.path.abspath(__file__), *sys.argv[1:], "--as", role, "--folder", folder]
    port = str(workers.free_port())
    if role == "horovod":
        processes = [start(["-m", "telegrad.run", "--horovod", *own], RANK=str(rank),
                           LOCAL_RANK=str(rank), WORLD_SIZE=str(NUM_RANKS),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                     for rank in range(NUM_RANKS)]
    else:
        processes = [start(own, DMLC_ROLE=each, DMLC_PS_ROOT_URI="127.0.0.1",
                           DMLC_PS_ROOT_PORT=port, DMLC_NODE_HOST="127.0.0.1",
                           DMLC_NUM_WORKER=str(NUM_RANKS), DMLC_NUM_SERVER="1")
                     for each in ("scheduler", "server", "worker", "worker")]
    codes = [process.wait(timeout=3600) for process in processes]
    assert not any(codes), f"{role}: {codes}"


def compare(folder, codec):
    import numpy as np
    found = {(role, rank): np.load(os.path.join(folder, f"{role}.{rank}.npy"))
             for role in ("horovod", "dist_sync") for rank in range(NUM_RANKS)
             if not codec or role == "horovod"}
    assert (found["horovod", 0] == found["horovod", 1]).all(), "ranks differ"
    if codec:
        return 0
    own, theirs = found["horovod", 0], found["dist_sync", 0]
    most = float(np.abs(own - theirs).max())
    print(f"largest difference {most:.3g} of weights up to {np.abs(theirs).max():.3g}; "
          f"{(own == theirs).mean():.2%} have the same bits")
    return int(most > MOST)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, standard in (("steps", 4), ("batch", 4), ("size", 32)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    parser.add_argument("--codec", default="")
    parser.add_argument("--as", dest="role", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        (by_horovod if options.role == "horovod" else by_dist_sync)(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        run("horovod", folder)
        if not options.codec:
            run("dist_sync", folder)
        sys.exit(compare(folder, options.codec))


if __name__ == "__main__":
    main()
