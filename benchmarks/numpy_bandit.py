"""NPG-NIW and its environments as plain NumPy loops, one trial at a time, float64.

What a careful researcher would write without JAX: the yardstick of bench_bandit.py, and
the independent reference that tests hold the jitted agents against. It shares no code
with ``bandit`` or ``rpg_jax``.
"""

from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

SLOTS, FIT_EVERY, FORGETTING, LEVEL, DRAWS = 128, 8, 0.3, 95.0, 1000
# Constants of the deterministic percentile.
CUT, BOTTOM, NEWTON_STEPS = 0.025, 4.5, 4
_SHARE = 1 - np.exp(-CUT)
Z_LOW, Z_HALF, Z_HIGH = (
    NormalDist().inv_cdf(1 - max((0.05 - _SHARE * above) / (1 - _SHARE), 0.1 * 0.05))
    for above in (0.0, 0.5, 1.0)
)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass
class SlotRate:
    """The paper's rate: accumulators, NIW over (sum r, log sum delta), percentile."""

    age: float
    sampled: bool
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    rate: float = 0.0
    fed: int = 0

    def __post_init__(self) -> None:
        self.reward = np.zeros(SLOTS)
        self.duration = np.zeros(SLOTS)
        self.birth = np.zeros(SLOTS)
        self.kappa, self.nu = 1e-3, 3.0
        self.mu, self.psi = np.zeros(2), 1e-3 * np.eye(2)

    def feed(self, t: int, reward: float, duration: float) -> None:
        """One greedy decision."""
        slot = self.fed % SLOTS
        self.fed += 1
        if t - self.birth[slot] > self.age:
            self.reward[slot] = self.duration[slot] = 0.0
            self.birth[slot] = t
        self.reward[slot] += reward
        self.duration[slot] += duration
        filled = self.duration > 0
        if t % FIT_EVERY == 0 and filled.sum() >= 2:
            self.fit(self.reward[filled], np.log(self.duration[filled]))

    def fit(self, reward: np.ndarray, log_duration: np.ndarray) -> None:
        """Refits the NIW and takes the percentile of the predictive batch ratio."""
        x = np.stack([reward, log_duration], axis=1)
        n, mean = len(x), x.mean(axis=0)
        kappa, nu = FORGETTING * self.kappa, max(FORGETTING * self.nu, 4.0)
        psi, gap = FORGETTING * self.psi, mean - self.mu
        scatter = (x - mean).T @ (x - mean)
        self.psi = psi + scatter + kappa * n / (kappa + n) * np.outer(gap, gap)
        self.mu = (kappa * self.mu + n * mean) / (kappa + n)
        self.kappa, self.nu = kappa + n, nu + n
        df = self.nu - 1
        shape = self.psi * (self.kappa + 1) / (self.kappa * df)
        quantile = (self.sample if self.sampled else self.analytic)(n, df, shape)
        self.rate = max(0.0, quantile)

    def sample(self, n: int, df: float, shape: np.ndarray) -> float:
        """The paper's form: 1,000 batches of n Student-t pairs."""
        root = np.linalg.cholesky(shape)
        normal = self.rng.standard_normal((DRAWS, n, 2)) @ root.T
        chi2 = self.rng.chisquare(df, (DRAWS, n, 1))
        pairs = self.mu + normal * np.sqrt(df / chi2)
        ratio = pairs[..., 0].mean(axis=1) / np.exp(pairs[..., 1]).mean(axis=1)
        return float(np.percentile(ratio, LEVEL))

    def analytic(self, n: int, df: float, shape: np.ndarray) -> float:
        """The same deterministic percentile as ``rpg_jax.ratio``, written out here.

        The root q of: the 95% quantile of mean(r) - q mean(exp(y)) is 0, the mean of n
        taken as Pearson III with moments from Gauss-Legendre nodes, the top 2.5% of
        batches cut off and counted as above q or below it by one at the cut.
        """
        var_r, cov, var_d = shape[0, 0], shape[0, 1], shape[1, 1]
        unit = max(abs(self.mu[0]) + np.sqrt(var_r), 1e-18)
        m_r, var_r, cov = self.mu[0] / unit, var_r / unit**2, cov / unit
        s = np.sqrt(-2 * np.log(CUT / n))
        top = s - (2.30753 + 0.27061 * s) / (1 + s * (0.99229 + 0.04481 * s))
        score = (top + BOTTOM) / 2 * NODES + (top - BOTTOM) / 2
        weight = WEIGHTS * np.exp(-(score**2) / 2)
        weight /= weight.sum()
        g = (df - 1.5) / (df - 1) ** 2
        u = np.maximum(g * score**2, 1e-6)
        x = score * np.sqrt(df * g * np.expm1(u) / u)
        u_top = max(g * top**2, 1e-6)
        edge = top * np.sqrt(df * g * np.expm1(u_top) / u_top)
        sd = np.sqrt(var_d)
        duration = np.exp(np.clip(sd * x, -28, 28))
        slope = cov / sd
        residual = max(var_r - slope**2, 0) * (df + x**2) / (df - 1)
        mean_r, mean_d = weight @ (slope * x), weight @ duration
        a, b = slope * x - mean_r, duration - mean_d
        aa = a * a + residual
        rr, rd, dd = weight @ aa, weight @ (a * b), weight @ (b * b)
        rrr, rrd = weight @ (a * (aa + 2 * residual)), weight @ (aa * b)
        rdd, ddd = weight @ (a * b * b), weight @ (b * b * b)
        root = np.sqrt(n)
        centre = (m_r + mean_r) / mean_d
        var = (rr - centre * (2 * rd - centre * dd)) / n
        spread = np.sqrt(max(var, 1e-12 * rr)) / mean_d
        q = centre + Z_LOW * spread
        edge_r, edge_d = slope * edge, np.exp(np.clip(sd * edge, -28, 28))
        reach = 0.75 * (abs(q) + spread)
        for _ in range(NEWTON_STEPS):
            second = max(rr - q * (2 * rd - q * dd), 1e-12 * (rr + q * q * dd))
            third = rrr - q * (3 * rrd - q * (3 * rdd - q * ddd))
            deviation = np.sqrt(second)
            skew = third / (second * deviation) / root
            total = (n - 1) * (m_r + mean_r - q * mean_d) + m_r + edge_r - q * edge_d
            above = (1 + np.tanh(0.8 * total / (deviation * root))) / 2
            linear, square = 4 * Z_HALF - 3 * Z_LOW - Z_HIGH, 2 * (Z_LOW + Z_HIGH)
            z = Z_LOW + above * (linear + (square - 4 * Z_HALF) * above)
            h = z / 6 - skew / 36
            w = h * (6 + skew * h * (6 + 2 * skew * h))
            value = m_r + mean_r - q * mean_d + deviation * w / root
            slope_q = min(
                w * (q * dd - rd) / (deviation * root) - mean_d, -0.25 * mean_d
            )
            q += np.clip(-value / slope_q, -reach, reach)
        return float(q * unit * np.exp(-self.mu[1]))


@dataclass
class Trial:
    """One permuted instance with its random numbers, as plain arrays.

    Attributes:
      reward_loc: m_r, [X, A].
      duration_loc: m_d in seconds, [X, A].
      context: x of each decision, [N].
      z1: reward noise, [N].
      z2: duration noise, [N].
      uniform: U(0, 1) behind each action, [N].
      lognormal: whether it is E4.
    """

    reward_loc: np.ndarray
    duration_loc: np.ndarray
    context: np.ndarray
    z1: np.ndarray
    z2: np.ndarray
    uniform: np.ndarray
    lognormal: bool

    def outcome(self, t: int, action: int) -> tuple[float, float]:
        """Reward and duration of an action at decision t (from 0)."""
        x = self.context[t]
        if action == self.reward_loc.shape[1] - 1:
            return 0.0, 0.35
        m_r, m_d = self.reward_loc[x, action], self.duration_loc[x, action]
        if self.lognormal:
            reward = m_r * np.exp(0.5 * self.z1[t] - 0.125)
            duration = m_d * np.exp(0.5 * self.z2[t] - 0.125)
        else:
            reward = max(m_r + 0.20 * self.z1[t], 0.0)
            duration = m_d * (1 + 0.15 * self.z2[t])
        return reward, max(duration, 0.5)


def npg_trial(
    trial: Trial, *, step_size: float, age: float, sampled: bool, seed: int = 0
) -> dict[str, np.ndarray]:
    """NPG-NIW on one trial: actions, rewards, durations, rates [N] and final logits."""
    num_contexts, num_actions = trial.reward_loc.shape
    shape = (num_contexts, num_actions)
    logits, sum_r, sum_d, count = (np.zeros(shape) for _ in range(4))
    price = SlotRate(age, sampled, np.random.default_rng(seed))
    steps = len(trial.context)
    log = {name: np.zeros(steps) for name in ("action", "reward", "duration", "rate")}
    for t in range(steps):
        x = trial.context[t]
        policy = np.exp(logits[x] - logits[x].max())
        policy /= policy.sum()
        cumulative = np.cumsum(policy)
        action = int((cumulative < trial.uniform[t] * cumulative[-1]).sum())
        reward, duration = trial.outcome(t, action)
        sum_r[x, action] += reward
        sum_d[x, action] += duration
        count[x, action] += 1
        if action == logits[x].argmax():
            price.feed(t + 1, reward, duration)
        tried = np.maximum(count[x], 1)
        q = (sum_r[x] - price.rate * sum_d[x]) / tried
        logits[x] += step_size * (q - policy @ q)
        for name, value in zip(
            log, (action, reward, duration, price.rate), strict=True
        ):
            log[name][t] = value
    return {**log, "logits": logits}
