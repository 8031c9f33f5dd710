"""Formulas of optimizers as papers and the manual of PyTorch print them, in plain NumPy.

Each is a generator: it takes a parameter, then a gradient and a learning rate (Eve's also a loss) at a time,
and yields the parameter after each step.
"""

from __future__ import annotations

import numpy as np


def sgd(p, *, momentum=0.0, nesterov=False, weight_decay=0.0):
    """Sutskever et al. 2013; torch.optim.SGD."""
    v = 0.0
    while True:
        g, lr = yield p
        g = g + weight_decay * p
        v = momentum * v + g
        p = p - lr * (g + momentum * v if nesterov else v)


def adagrad(p, *, eps=1e-10, initial_accumulator=0.0, weight_decay=0.0):
    """Duchi et al. 2011; torch.optim.Adagrad."""
    total = initial_accumulator
    while True:
        g, lr = yield p
        g = g + weight_decay * p
        total = total + g**2
        p = p - lr * g / (np.sqrt(total) + eps)


def rmsprop(p, *, alpha=0.99, eps=1e-8, momentum=0.0, centered=False, weight_decay=0.0):
    """torch.optim.RMSprop."""
    square = mean = b = 0.0
    while True:
        g, lr = yield p
        g = g + weight_decay * p
        square = alpha * square + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        spread = square - mean**2 if centered else square
        b = momentum * b + g / (np.sqrt(spread) + eps)
        p = p - lr * b


def adam(p, *, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False):
    """Kingma and Ba 2015, algorithm 1; `decoupled`: Loshchilov and Hutter 2019, algorithm 2."""
    m = v = 0.0
    t = 0
    while True:
        g, lr = yield p
        t += 1
        if decoupled:
            p = p - lr * weight_decay * p
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        p = p - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def adamw(p, *, weight_decay=0.01, **settings):
    """Loshchilov and Hutter 2019, algorithm 2."""
    return adam(p, weight_decay=weight_decay, decoupled=True, **settings)


def eve(p, *, betas=(0.9, 0.999, 0.999), eps=1e-8, limit=10.0, minimum=0.0):
    """Hayashi, Koushik and Neubig 2018, algorithm 1."""
    m = v = 0.0
    t, smooth, before = 0, 1.0, None
    while True:
        g, lr, f = yield p
        t += 1
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        if t > 1:
            d = abs(f - before) / (min(f, before) - minimum)
            smooth = betas[2] * smooth + (1 - betas[2]) * np.clip(d, 1 / limit, limit)
        before = f
        p = p - lr / smooth * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
