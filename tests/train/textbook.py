"""The formula of Eve as its paper prints it, in plain NumPy.

It is a generator: it takes a parameter, then a gradient, a learning rate and a loss at a time,
and yields the parameter after each step.
"""

import numpy as np


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
