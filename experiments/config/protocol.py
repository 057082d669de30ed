"""Two protocols: ``sound``, our default, and ``paper``, the published one.

Every difference between them is a field below; a flag overrides one field of a preset.
"""

import dataclasses

from experiments.config import plain
from experiments.config.objective import MaxAtK
from experiments.config.rate import RateOptions
from experiments.config.reward_rule import PAPER_RULE, RewardRule

REWARD_SPLITS = ("validation", "test")
REPEATS = ("reuse", "run")
ADVANTAGES = ("loo", "parent", "critic")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Top-k, top-p and the presence penalty are off under ``sound``: with them the
    distribution that is sampled from is not the policy whose ratio PPO takes.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    presence_penalty: float = 0.0
    max_prompt_tokens: int = 2560
    max_new_tokens: int = 2500


@dataclasses.dataclass(frozen=True)
class Learning:
    """Hyper-parameters that a protocol fixes; names as in ``PPOHyper``, but:

    Attributes:
        advantage: the baseline: ``loo``, the mean of the others; ``parent``, a
            regression on the parent's value and log seconds
            (``experiments.loop.baseline``); ``critic``, a learned value.
        baseline_batches: of ``parent``: batches that its slopes are fitted to.
        cap_gainless: a script that gains nothing (value <= 0) has no positive
            advantage, unless no script of its batch gains anything. Where only the
            trainer knows the advantages (critic, whitening) this does nothing.
    """

    advantage: str = "loo"
    epochs: int = 2
    clip_eps: float = 0.2
    kl_coef: float = 0.001
    kl_in_reward: bool = False
    entropy_coef: float = 0.001
    whiten: bool = False
    learning_rate: float = 1e-6
    critic_learning_rate: float = 1e-5
    value_clip: float = 0.5
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    baseline_batches: int = plain.later(8)
    cap_gainless: bool = plain.later(False)

    def __post_init__(self) -> None:
        if self.advantage not in ADVANTAGES:
            raise ValueError(
                f"advantage must be one of {ADVANTAGES}, got {self.advantage!r}"
            )
        if self.baseline_batches < 1:
            raise ValueError("the baseline needs at least one batch")

    @property
    def plain_advantage(self) -> bool:
        """Whether an update's advantages follow from the ledger alone."""
        return self.advantage != "critic" and not (self.kl_in_reward or self.whiten)

    @property
    def caps(self) -> bool:
        """Whether ``cap_gainless`` is on and can act."""
        return self.cap_gainless and self.plain_advantage


MAX_AT_K = MaxAtK()


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Everything that the arms of an experiment share.

    Attributes:
        name: of the preset.
        rule: reward, failure charge and clock.
        rate: estimator of the reward rate and its data.
        reward_split: answers that make the reward; ``test`` is the paper's choice and
            lets the policy see its own exam.
        buffer_capacity: valid attempts kept for the next states, first in first out.
        chains: slots, one attempt each per step.
        sampling: how answers are drawn.
        learning: how the policy is updated.
        repeats: a script that the run has seen before is given its first run's outcome
            (``reuse``) or is run again (``run``: the paper, and records that say
            nothing of it).
        max_at_k: of the arms that have this objective.
    """

    name: str = "sound"
    rule: RewardRule = dataclasses.field(default_factory=RewardRule)
    rate: RateOptions = dataclasses.field(default_factory=RateOptions)
    reward_split: str = "validation"
    buffer_capacity: int = 1280
    chains: int = 128
    sampling: Sampling = Sampling()
    learning: Learning = Learning()
    repeats: str = plain.later("run")
    max_at_k: MaxAtK = dataclasses.field(default=MAX_AT_K, metadata={"later": True})

    def __post_init__(self) -> None:
        if self.repeats not in REPEATS:
            raise ValueError(f"repeats must be one of {REPEATS}, got {self.repeats!r}")
        if self.reward_split not in REWARD_SPLITS:
            raise ValueError(
                f"reward split must be one of {REWARD_SPLITS}, got "
                f"{self.reward_split!r}"
            )
        if self.chains < 1 or self.buffer_capacity < 1:
            raise ValueError("a run needs at least one chain and room for one attempt")

    @property
    def reuses(self) -> bool:
        """Whether a script that was seen before is not run again."""
        return self.repeats == "reuse"


SOUND = Protocol(learning=Learning(cap_gainless=True), repeats="reuse")

PAPER = Protocol(
    name="paper",
    rule=PAPER_RULE,
    rate=RateOptions(data="slots", leave_one_out=False),
    reward_split="test",
    sampling=Sampling(temperature=0.7, top_k=20, top_p=0.8, presence_penalty=1.5),
    learning=Learning(advantage="critic", kl_in_reward=True, whiten=True),
)

PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (SOUND, PAPER)}


def get_protocol(name: str) -> Protocol:
    """The preset of that name.

    Raises:
        ValueError: no such protocol.
    """
    if name not in PROTOCOLS:
        raise ValueError(
            f"there is no protocol {name!r}: choose from {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[name]
