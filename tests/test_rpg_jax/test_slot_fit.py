"""The fit to slots against the paper's formulas, and in batches."""

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax import conjugate, slots


def section_three(carried, pairs, f):
    """The slot fit of the bandit study, written from its formulas."""
    kappa, nu, mu, psi = carried
    n = len(pairs)
    kappa0, nu0, psi0 = f * kappa, max(f * nu, 4), f * psi
    xbar = pairs.mean(0)
    s = (pairs - xbar).T @ (pairs - xbar)
    kappa_n = kappa0 + n
    gap = xbar - mu
    return (
        kappa_n,
        nu0 + n,
        (kappa0 * mu + n * xbar) / kappa_n,
        psi0 + s + kappa0 * n / kappa_n * np.outer(gap, gap),
    )


def test_slot_fits_follow_the_papers_recursion():
    rng = np.random.default_rng(9)
    carried = (1e-3, 3.0, np.zeros(2), 1e-3 * np.eye(2))
    niw = conjugate.niw_prior()
    fit = jax.jit(slots.fit_slots)
    for n in (2, 5, 77, 128, 128):
        reward = rng.normal(1, 0.3, 128).astype(np.float32)
        duration = np.exp(rng.normal(0.5, 0.6, 128)).astype(np.float32)
        filled = np.arange(128) < n
        got = fit(niw, *(jnp.asarray(v) for v in (reward, duration, filled)))
        data = np.stack([reward, np.log(duration.astype(np.float64))], -1)[:n]
        carried = section_three(carried, data.astype(np.float64), 0.3)
        niw = got.niw
        assert got.number == n
        for g, w in zip((niw.kappa, niw.nu, niw.mean, niw.scale), carried, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5)


def test_slot_fit_needs_two_usable_slots():
    prior = conjugate.niw_prior()
    reward = jnp.array([1.0, jnp.nan, 2.0, 1.0, 5.0])
    duration = jnp.array([2.0, 1.0, 0.0, jnp.inf, 1.0])
    mask = jnp.array([True, True, True, True, False])
    got = slots.fit_slots(prior, reward, duration, mask)
    assert got.number == 1
    assert got.rejected == 3
    for g, w in zip(got.niw, prior, strict=True):
        np.testing.assert_array_equal(g, w)


def test_vmap_and_batch_dimensions_agree():
    rng = np.random.default_rng(10)
    x = jnp.asarray(rng.normal(600, 1, (3, 20, 2)), jnp.float32)
    mask = jnp.asarray(rng.random((3, 20)) < 0.7)
    prior = conjugate.niw_prior()
    niw = jax.tree.map(lambda v: jnp.broadcast_to(v, (3, *v.shape)), prior)

    @jax.jit
    def run(prior, niw):
        rows = (x[..., 0], x[..., 1], mask)
        # One prior for the whole batch is spread over it, ranks promoted explicitly.
        return [
            (conjugate.update(prior, x, mask), slots.fit_slots(prior, *rows)),
            (conjugate.update(niw, x, mask), slots.fit_slots(niw, *rows)),
            (
                jax.vmap(conjugate.update, (None, 0, 0))(prior, x, mask),
                jax.vmap(slots.fit_slots)(niw, *rows),
            ),
        ]

    spread, batched, mapped = run(prior, niw)
    for other in (batched, mapped):
        for a, b in zip(jax.tree.leaves(spread), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)
