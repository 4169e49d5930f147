"""``transitbench-mini``: an endless stream of small tasks for training.

A task is a number. Its stars follow from it, the split and the evaluator's secret alone
(:mod:`transitbench.mini`), so they are made where they are needed: the labelled ones when the agent's box
is filled, the hidden ones when it is graded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import verifiers.v1 as vf

from transitbench.cage import MINI_LIMITS
from transitbench.errors import TransitBenchError
from transitbench.home import evaluator_secret, private_dir
from transitbench.mini import (
    N_STARS,
    DrawnStar,
    Part,
    Split,
    graded_stars,
    pool_stars,
    simulated_stars,
    star_files,
    truth_of,
)
from transitbench.score import Score, mini_reward
from transitbench.sets import StarSet
from transitbench_env.boxkit import WORKDIR
from transitbench_env.brief import SOURCE_TEXTS, Budget, render_task
from transitbench_env.images import load_images
from transitbench_env.task import (
    HiddenStars,
    LabelledStars,
    PipelineData,
    PipelineTask,
    session,
)

MINI_BUDGET = Budget(
    session_s=3600.0,
    turns=12,
    tokens=32_768,
    shell_limit_s=75.0,
    cpus=2,
    memory_gb=4,
    disk_gb=2,
)
DEV_TASKS = 32
POOL = "mini-pool"
SUFFIX = "mini"


SCORING_S = 4 * 3600.0
"""Sixteen stars take minutes at worst; on one machine many sessions may wait for their turn."""


class MiniData(PipelineData):
    """Which task it is; its stars follow."""

    split: Split
    number: int
    stars: Literal["sim", "kepler"]


class MiniTask(PipelineTask[MiniData]):
    """Twelve labelled stars, sixteen hidden ones, eight planets among these."""

    limits = MINI_LIMITS
    budget = MINI_BUDGET

    @property
    def key(self) -> str:
        """Identity that does not depend on the wording of the prompt."""
        return f"mini/{self.data.stars}/{self.data.split}/{self.data.number}"

    def check_stars(self) -> None:
        """Raise TB-E001 if real stars are asked for and not here."""
        if self.data.stars == "kepler":
            _open_pool()

    def _drawn(self, part: Part) -> list[DrawnStar]:
        split, number, secret = self.data.split, self.data.number, evaluator_secret()
        if self.data.stars == "kepler":
            return pool_stars(_open_pool(), split, number, part, secret)
        return simulated_stars(split, number, part, secret)

    def labelled(self) -> LabelledStars:
        """Make or read the labelled stars."""
        drawn = self._drawn("labelled")
        return LabelledStars(_readers(drawn), truth_of(drawn))

    def hidden(self) -> Sequence[HiddenStars]:
        """Make or read the hidden stars."""
        drawn = self._drawn("hidden")
        name = f"mini-{self.data.split}-{self.data.number}"
        return [HiddenStars(SUFFIX, _readers(drawn), graded_stars(name, drawn))]

    def rewarded(self, scores: Mapping[str, Score]) -> dict[str, float]:
        """Return (credit − false) / 8, clipped to [−1, 1]."""
        score = scores[SUFFIX]
        return {"mini_reward": mini_reward(score.credit, score.n_false)}

    @vf.reward
    async def score_on_hidden_stars(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        """Reward of the task, as graded."""
        return trace.metrics["mini_reward"]


class MiniConfig(vf.TasksetConfig):
    """Knobs of ``transitbench-mini``."""

    split: Split = "train"
    """``train`` never ends, ``dev`` has 32 tasks."""
    stars: Literal["sim", "kepler"] = "sim"
    """Simulated stars, or those of the private pool in TRANSITBENCH_DATA."""
    images: Path | None = None
    """JSON file that names the boxes' image, instead of the package's own."""


class MiniTaskset(vf.Taskset[MiniTask, MiniConfig]):
    """Small tasks: build a pipeline on 12 labelled stars, be graded on 16 hidden ones."""

    @property
    def INFINITE(self) -> bool:
        """Whether the stream never ends."""
        return self.config.split == "train"

    def load(self) -> Iterator[MiniTask]:
        """Yield the split's tasks."""
        image = load_images(self.config.images)["mini"]
        prompt = _prompt(self.config.stars)
        numbers: Iterable[int] = itertools.count() if self.INFINITE else range(DEV_TASKS)
        for number in numbers:
            yield MiniTask(
                MiniData(
                    id=f"{self.config.split}-{number}",
                    name=f"mini {self.config.split} {number}",
                    split=self.config.split,
                    number=number,
                    stars=self.config.stars,
                    prompt=prompt,
                    image=image,
                    workdir=WORKDIR,
                    **session(MINI_BUDGET, scoring_s=SCORING_S),
                ),
                self.config.task,
            )


def _prompt(stars: Literal["sim", "kepler"]) -> str:
    n_labelled, n_hidden = (sum(N_STARS[part].values()) for part in ("labelled", "hidden"))
    return render_task(
        n_labelled=n_labelled,
        hidden_text=f"{n_hidden} other stars, which are not in this box",
        source_text=SOURCE_TEXTS[stars],
        reward_text=(
            f"The reward is S on the hidden stars, of which {N_STARS['hidden']['planet']} have one planet each, "
            "clipped to [-1, 1]."
        ),
        limits=MINI_LIMITS,
        budget=MINI_BUDGET,
    )


def _open_pool() -> StarSet:
    path = private_dir() / POOL
    if not (path / "manifest.json").is_file():
        raise TransitBenchError(
            "TB-E001",
            f"the pool of real stars for mini tasks is not at {path}",
            "use stars=sim, or point TRANSITBENCH_DATA at the evaluator's data",
        )
    return StarSet(path)


def _readers(drawn: Sequence[DrawnStar]) -> dict[str, partial[bytes]]:
    return {star: partial(bytes, content) for star, content in star_files(drawn).items()}
