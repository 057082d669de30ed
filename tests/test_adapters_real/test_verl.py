"""The verl adapter in verl's own reward workers: what reaches the advantage.

verl trains on accelerators; what is real here is its reward loop (manager, Ray workers,
loading from the configuration) and its advantage estimator.
"""

import asyncio
import warnings

import numpy as np
import pytest

pytest.importorskip("verl")
import ray
import torch
from omegaconf import OmegaConf
from repo_paths import ROOT
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.reward import load_reward_manager

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

FUNCTION = """
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    return {"score": float(ground_truth), "seconds": float(len(solution_str))}


async def later(**row):
    return compute_score(**row)
"""
ANSWERS = ["a", "aaa", "aa", "aaaa"]
REWARDS = [1.0, 1.0, 0.0, 1.0]


class Letters:
    def decode(self, ids, **options):
        return "a" * int((ids > 0).sum())


def config(folder, **reward):
    (folder / "score.py").write_text(FUNCTION)
    return OmegaConf.create(
        {
            "data": {"train_batch_size": 2},
            "actor_rollout_ref": {"rollout": {"n": 2}},
            "algorithm": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False},
            "trainer": {"default_local_dir": str(folder / "checkpoints")},
            "reward": {
                "custom_reward_function": {
                    "path": str(folder / "score.py"),
                    "name": "compute_score",
                },
                "reward_manager": {
                    "source": "importlib",
                    "name": "RewardRateManager",
                    "module": {"path": "pkg://rpg_jax.adapters.verl_manager"},
                },
                "reward_kwargs": {"rpg": {"initial_rate": 0.125}},
            }
            | reward,
        }
    )


def data(answer, reward, split="train"):
    ids = torch.ones(1, 4, dtype=torch.long)
    mask = torch.zeros(1, 6, dtype=torch.long)
    mask[:, : 2 + len(answer)] = 1
    batch = TensorDict(
        {"prompts": ids[:, :2], "responses": ids, "attention_mask": mask},
        batch_size=1,
    )
    columns = {
        "data_source": np.array(["d"], dtype=object),
        "reward_model": np.array([{"ground_truth": reward}], dtype=object),
        "extra_info": np.array([{"split": split}], dtype=object),
    }
    return DataProto(batch=batch, non_tensor_batch=columns)


def rows(run, split="train"):
    async def all_of_them():
        found = [run(data(a, r, split)) for a, r in zip(ANSWERS, REWARDS, strict=True)]
        return await asyncio.gather(*found)

    return all_of_them


@pytest.mark.parametrize("name", ["compute_score", "later"])
def test_the_relative_reward_reaches_the_advantage(tmp_path, name):
    settings = config(tmp_path)
    settings.reward.custom_reward_function.name = name

    async def job():
        manager = load_reward_manager(settings, Letters())
        first = await rows(manager.run_single)()
        judged = await rows(manager.run_single, "test")()
        return first, judged, await rows(manager.run_single)()

    first, judged, second = asyncio.run(job())
    seconds = np.array([len(answer) for answer in ANSWERS])
    rate = sum(REWARDS) / seconds.sum()
    for found, want in ((first, 0.125), (judged, rate), (second, rate)):
        scores = [each["reward_score"] for each in found]
        np.testing.assert_allclose(scores, REWARDS - want * seconds)
        assert [each["reward_extra_info"]["rpg_rate"] for each in found] == [want] * 4
    scores = torch.tensor([each["reward_score"] for each in second]).unsqueeze(1)
    advantages, _ = compute_grpo_outcome_advantage(
        scores.float(),
        torch.ones(4, 1),
        np.array([0, 0, 1, 1]),
        norm_adv_by_std_in_grpo=settings.algorithm.norm_adv_by_std_in_grpo,
    )
    relative = (REWARDS - rate * seconds).reshape(2, 2)
    want = relative - relative.mean(1, keepdims=True)
    np.testing.assert_allclose(advantages[:, 0], want.ravel(), atol=1e-6)
    assert (tmp_path / "checkpoints" / "rpg_rate.json").exists()

    async def resumed():
        return await rows(load_reward_manager(settings, Letters()).run_single)()

    found = asyncio.run(resumed())
    assert found[0]["reward_extra_info"]["rpg_rate"] == pytest.approx(rate)


def test_scaling_by_the_deviation_is_said_once(tmp_path):
    from rpg_jax.adapters.verl_manager import warn_of_scaling

    settings = config(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_scaling(settings)
    settings.algorithm.norm_adv_by_std_in_grpo = True
    with pytest.warns(UserWarning, match="norm_adv_by_std_in_grpo=False"):
        warn_of_scaling(settings)


def test_workers_share_one_rate():
    path = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=path)
    try:

        @ray.remote(num_cpus=0)
        class Worker:
            def __init__(self):
                from rpg_jax.adapters.verl import score_function

                self.score = score_function(
                    lambda solution_str, **_: (1.0, float(len(solution_str))),
                    rows_per_step=8,
                    initial_rate=0.5,
                )

            def run(self, text):
                return self.score(solution_str=text, extra_info={})["rpg_rate"]

        workers = [Worker.remote() for _ in range(4)]
        calls = [worker.run.remote("aa") for worker in workers for _ in range(2)]
        assert ray.get(calls) == [0.5] * 8
        # The rate that all of them made, and not their own 2 answers'.
        assert ray.get([worker.run.remote("aa") for worker in workers]) == [0.5] * 4
        from rpg_jax.adapters.ray_server import RayRates

        assert RayRates().counts()["rows"] == 12
    finally:
        ray.shutdown()
