"""A script that knows nothing of Telegrad, for `python -m telegrad.run`."""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(32, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(8, 32) + dist.get_rank()
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
print("loss", loss.item(), "weights", sum(p.double().sum().item()
                                           for p in model.parameters()))
