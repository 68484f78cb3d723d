"""Runs in the peers' environment: python _learning_worker.py TASK input.npz output.npz.

The loss of `ordiff.learning.likelihood` for known times and one ordering, and its derivatives by l, slope, noise and
the log weights, as one would write it with JAX or PyTorch: neighbours as a rectangle (m, k + 1), and the reverse of
the neighbour lists as a padded one, so that a step of the mass is a gather and a sum over a row.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from statistics import median

import numpy as np


def measured(function, repeats):
    """The result, and the median seconds after a first call that compiles."""
    function()
    taken = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        result = function()
        taken.append(time.perf_counter() - start)
    return result, median(taken)


def answer(value, gradient, seconds):
    return {"value": np.asarray(value), "gradient": np.concatenate([np.asarray(g) for g in gradient]), "time": seconds}


PARAMETERS = ("l", "slope", "noise", "weight")


def _jax():
    """JAX in float64, and the parts that both ways share: P, its reverse, one step, and the likelihood of slices."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def take(values, index):
        return values.at[index].get(mode="promise_in_bounds")  # no tests of the indices, which are unsigned

    def matrix(a):
        rise = a["slope"][:, None] * (take(a["l"], a["index"]) - a["l"][:, None])
        logs = (rise - a["sqdist"] / (2 * a["eps"])) / a["noise"][:, None] ** 2 + take(a["weight"], a["index"])
        return jax.nn.softmax(logs, axis=1)

    def reverse(a, P):
        return take(P.ravel(), a["reverse_edge"]) * a["filled"]

    def step(a, PT, p):
        return (PT * take(p, a["reverse_index"])).sum(axis=1)

    def likelihood(a, slices):
        at = jnp.arange(slices.shape[1])
        return a["share"] * slices[a["left"], at] + (1 - a["share"]) * slices[a["left"] + 1, at] + a["floor"]

    return jax, jnp, take, matrix, reverse, step, likelihood


def _prepared(jnp, problem):
    """The arrays on JAX's side, indices unsigned; the padding of the reverse lists points at edge 0, times 0."""
    filled = problem["reverse_edge"] < problem["index"].size
    problem |= {"filled": filled.astype(float), "reverse_edge": np.where(filled, problem["reverse_edge"], 0)}
    for name in ("index", "reverse_edge", "reverse_index"):
        problem[name] = problem[name].astype(np.uint32)
    steps = int(problem.pop("steps"))
    return {name: jnp.asarray(value) for name, value in problem.items()}, steps


def jax_autodiff(repeats, **problem):
    jax, jnp, _, matrix, reverse, step, likelihood = _jax()
    a, steps = _prepared(jnp, problem)
    again = jax.checkpoint(step)  # else every step keeps its gathered masses, (m, k) each

    def loss(parameters, a):
        a = a | parameters
        PT = reverse(a, matrix(a))

        def body(p, _):
            p = again(a, PT, p)
            return p, p

        _, slices = jax.lax.scan(body, a["initial"], None, length=steps)
        return -jnp.log(likelihood(a, jnp.concatenate([a["initial"][None], slices]))).mean()

    both = jax.jit(jax.value_and_grad(loss))
    parameters = {name: a[name] for name in PARAMETERS}
    (value, gradient), seconds = measured(lambda: jax.block_until_ready(both(parameters, a)), repeats)
    return answer(value, [gradient[name] for name in PARAMETERS], seconds)


def jax_adjoint(repeats, **problem):
    jax, jnp, take, matrix, reverse, step, likelihood = _jax()
    a, steps = _prepared(jnp, problem)

    @jax.jit
    def both(a):
        P = matrix(a)
        PT = reverse(a, P)
        m, index = a["initial"].size, a["index"]
        at = jnp.arange(m)

        def forward(p, _):
            after = step(a, PT, p)
            return after, after

        _, slices = jax.lax.scan(forward, a["initial"], None, length=steps)
        slices = jnp.concatenate([a["initial"][None], slices])
        likelihoods = likelihood(a, slices)
        source = jnp.zeros_like(slices).at[a["left"], at].add(-a["share"] / likelihoods / m)
        source = source.at[a["left"] + 1, at].add(-(1 - a["share"]) / likelihoods / m)

        def backward(carry, now):
            later, G = carry
            p, src = now
            gathered = take(later, index)
            return ((P * gathered).sum(axis=1) + src, G + p[:, None] * gathered), None

        start = (source[-1], jnp.zeros_like(P))
        (_, G), _ = jax.lax.scan(backward, start, (slices[:-1], source[:-1]), reverse=True)
        M = P * (G - (P * G).sum(axis=1, keepdims=True))
        rise = (M * (take(a["l"], index) - a["l"][:, None])).sum(axis=1)
        second = (M * a["sqdist"]).sum(axis=1)
        noise, slope = a["noise"], a["slope"]
        by_noise = (second / a["eps"] - 2 * slope * rise) / noise**3
        MT = reverse(a, M)
        by_l = (MT * take(slope / noise**2, a["reverse_index"])).sum(axis=1)
        return -jnp.log(likelihoods).mean(), (by_l, rise / noise**2, by_noise, MT.sum(axis=1))

    (value, gradient), seconds = measured(lambda: jax.block_until_ready(both(a)), repeats)
    return answer(value, gradient, seconds)


def torch_autodiff(repeats, **problem):
    import torch

    a = {name: torch.from_numpy(np.asarray(value)) for name, value in problem.items()}
    index, flat = a["index"].long(), a["reverse_index"].long().reshape(-1)
    padded = a["reverse_edge"] < index.numel()
    reverse_edge = torch.where(padded, a["reverse_edge"].long(), 0)
    left, at = a["left"].long(), torch.arange(index.shape[0])
    steps, eps = int(problem["steps"]), float(problem["eps"])

    def both():
        parameters = [a[name].clone().requires_grad_() for name in PARAMETERS]
        l, slope, noise, weight = parameters
        logs = (slope[:, None] * (l[index] - l[:, None]) - a["sqdist"] / (2 * eps)) / noise[:, None] ** 2
        P = torch.softmax(logs + weight[index], dim=1)
        PT = P.reshape(-1)[reverse_edge] * padded
        slices = [a["initial"]]
        for _ in range(steps):
            gathered = torch.index_select(slices[-1], 0, flat).view(PT.shape)  # the fastest of its gathers
            slices.append((PT * gathered).sum(dim=1))
        slices = torch.stack(slices)
        likelihood = a["share"] * slices[left, at] + (1 - a["share"]) * slices[left + 1, at] + a["floor"]
        loss = -torch.log(likelihood).mean()
        loss.backward()
        return loss.item(), [parameter.grad.numpy() for parameter in parameters]

    taken = {}
    for threads in {1, torch.get_num_threads()}:  # whichever is faster: more threads are not always
        torch.set_num_threads(threads)
        (value, gradient), taken[threads] = measured(both, repeats)
    return answer(value, gradient, min(taken.values()))


def versions():
    return {name: version(name) for name in ("jax", "torch", "numpy")}


if __name__ == "__main__":
    task, source, target = sys.argv[1:]
    with np.load(source) as arrays:
        result = globals()[task](**arrays)
    np.savez(target, **result)
