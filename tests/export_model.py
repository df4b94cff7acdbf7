"""export_model.py - models for tests/export_network.sh: what an export has to see of them is known."""
import torch
from torch import nn


class Cube(torch.autograd.Function):
    """A function with a derivative of its own, which keeps its operand and nothing else."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32, bias=False)
        self.register_buffer("scale", torch.ones(32))

    def forward(self, x):
        h = torch.sin(self.up(x * self.scale.to(x.dtype)))  # no recipe: keeps its operand
        h = Cube.apply(h)
        return x + self.down(torch.nn.functional.dropout(h, 0.1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 32)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.out = nn.Linear(32, 100, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens):
        if (tokens < 0).any():  # asks for values of integers
            raise ValueError("tokens are from 0 on")
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def make():
    return Model()


class Branch(Model):
    def forward(self, tokens):
        x = self.table(tokens)
        return self.out(x if x.sum() > 0 else -x)


def make_branch():
    return Branch()


def mean_loss(output, labels):
    return output.float().mean()
