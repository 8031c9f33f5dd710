"""The formula of Eve as its paper prints it, in plain NumPy.

It is a generator: it takes a parameter, then a gradient, a learning rate and a loss at a time, and yields the
parameter after each step.
"""

import numpy as np


def eve(p, *, betas=(0.9, 0.999, 0.999), eps=1e-8, thresholds=(0.1, 10.0), minimum=0.0):
    """Koushik and Hayashi 2016 (arXiv 1611.01505, version 1), algorithm 1, of the loss above a minimum."""
    k, K = thresholds
    m = v = 0.0
    t, d, f_hat = 0, 1.0, None
    while True:
        g, lr, f = yield p
        f = f - minimum
        t += 1
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        if t > 1:
            delta, Delta = (k + 1, K + 1) if f >= f_hat else (1 / (K + 1), 1 / (k + 1))
            c = min(max(delta, f / f_hat), Delta)
            f_next = c * f_hat
            r = abs(f_next - f_hat) / min(f_next, f_hat)
            d = betas[2] * d + (1 - betas[2]) * r
            f_hat = f_next
        else:
            f_hat = f
        p = p - lr * (m / (1 - betas[0] ** t)) / (d * np.sqrt(v / (1 - betas[1] ** t)) + eps)
