"""A network of torch whose gradients tests know exactly."""
import torch


class Net(torch.nn.Module):
    """Integer weights: with integer inputs all gradients are integers."""

    def __init__(self, has_unused=False):
        super().__init__()
        self.first = torch.nn.Linear(24, 50)
        self.second = torch.nn.Linear(50, 40)
        self.unused = torch.nn.Linear(40, 7) if has_unused else None
        self.last = torch.nn.Linear(40, 3)
        torch.manual_seed(7)
        for parameter in self.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape).float()

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def inputs(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(-1, 2, (2, 24), generator=generator).float()
