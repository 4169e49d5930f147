"""``transitbench-survey``: the benchmark. A session on labelled stars, graded on thousands of hidden ones.

Three tasks, told apart by their id: ``survey-r1`` is graded on the private sets A and B and on dev,
``survey-dev`` on dev alone, ``survey-sim`` on simulated sets, on any machine. The framework's
``select.include.ids`` picks; a task whose stars this machine has not got fails with TB-E001 or TB-E002
before any box starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from transitbench.cage import SURVEY_LIMITS
from transitbench.catalogue import SETS, open_hidden_set, open_set
from transitbench.errors import TransitBenchError
from transitbench.home import evaluator_secret
from transitbench.score import Score
from transitbench.sets import StarSet
from transitbench.simset import SIM_SETS
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

SURVEY_BUDGET = Budget(
    session_s=4 * 3600.0,
    turns=60,
    tokens=200_000,
    shell_limit_s=940.0,
    cpus=16,
    memory_gb=32,
    disk_gb=16,
)
SIM_STARS = 200
"""Stars of each simulated set that ``survey-sim`` is graded on by default: a laptop finishes."""

_GRADED = {"survey-r1": ("A", "B", "dev"), "survey-dev": ("dev",)}
_LABELLED = {"survey-r1": "dev", "survey-dev": "dev", "survey-sim": "sim-dev"}


class SurveyData(PipelineData):
    """Names of sets; the reward is S on the first of the graded ones."""

    labelled_set: str
    graded_sets: tuple[str, ...]
    n_graded: int | None
    """Stars of each graded set; None = all."""


class SurveyTask(PipelineTask[SurveyData]):
    """One session on the labelled set, one pass over the graded ones."""

    limits = SURVEY_LIMITS
    budget = SURVEY_BUDGET

    @property
    def key(self) -> str:
        """Identity that does not depend on the wording of the prompt."""
        n = "all" if self.data.n_graded is None else self.data.n_graded
        return f"{self.data.id}/{'+'.join(self.data.graded_sets)}/{n}"

    def check_stars(self) -> None:
        """Raise TB-E001, TB-E002 or TB-E008 if a set is not here and not made on first use."""
        for name in (*self.data.graded_sets, self.data.labelled_set):
            if name not in SIM_SETS:
                open_set(name)

    def labelled(self) -> LabelledStars:
        """Open the labelled set."""
        labelled = open_set(self.data.labelled_set, jobs=1)
        return LabelledStars(_readers(labelled), labelled.truth)

    def hidden(self) -> Sequence[HiddenStars]:
        """Open the graded sets; simulated ones are drawn with the evaluator's secret if there is one."""
        opened = [
            open_hidden_set(name, evaluator_secret(), self.data.n_graded, jobs=1)
            for name in self.data.graded_sets
        ]
        return [
            HiddenStars(metric_suffix(name), _readers(star_set), star_set.graded())
            for name, star_set in zip(self.data.graded_sets, opened, strict=True)
        ]

    def rewarded(self, scores: Mapping[str, Score]) -> dict[str, float]:
        """Nothing: the reward is one of the metrics of the first set."""
        return {}

    @vf.reward
    async def score_on_hidden_stars(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        """S on the first graded set."""
        return trace.metrics[f"S_{metric_suffix(self.data.graded_sets[0])}"]


class SurveyConfig(vf.TasksetConfig):
    """Knobs of ``transitbench-survey``."""

    graded_sets: tuple[str, ...] = ("sim-A",)
    """Sets that ``survey-sim`` is graded on; the reward is S on the first."""
    n_graded: int | None = SIM_STARS
    """Stars of each of them, None (``"None"`` in TOML) for all."""
    images: Path | None = None
    """JSON file that names the boxes' image, instead of the package's own."""


class SurveyTaskset(vf.Taskset[SurveyTask, SurveyConfig]):
    """The benchmark on Kepler's stars, and the same on simulated ones."""

    def load(self) -> Iterator[SurveyTask]:
        """Yield ``survey-r1``, ``survey-dev`` and ``survey-sim``."""
        image = load_images(self.config.images)["survey"]
        for task in _LABELLED:
            simulated = task == "survey-sim"
            graded_sets = self.config.graded_sets if simulated else _GRADED[task]
            n_graded = self.config.n_graded if simulated else None
            counts = [_n_stars(name, n_graded) for name in graded_sets]
            yield SurveyTask(
                SurveyData(
                    id=task,
                    name=task,
                    labelled_set=_LABELLED[task],
                    graded_sets=graded_sets,
                    n_graded=n_graded,
                    prompt=_prompt(_LABELLED[task], graded_sets, counts),
                    image=image,
                    workdir=WORKDIR,
                    **session(SURVEY_BUDGET, scoring_s=_scoring_s(sum(counts))),
                ),
                self.config.task,
            )


def metric_suffix(set_name: str) -> str:
    """Return what the metrics of a set end in: ``sim-A`` gives ``sim_A``."""
    return set_name.replace("-", "_")


def _n_stars(name: str, limit: int | None = None) -> int:
    n_stars = SETS[name].n_stars if name in SETS else None
    if n_stars is None:
        raise TransitBenchError(
            "TB-E008",
            f"{name!r} cannot be a graded set of a survey",
            f"choose from {', '.join(each.name for each in SETS.values() if each.n_stars)}",
        )
    return min(n_stars, limit or n_stars)


def _scoring_s(n_stars: int) -> float:
    """Time for all stars at their limit on two cores, and for filling the box: nobody's score runs out of time."""
    return 600.0 + n_stars * (SURVEY_LIMITS.wall_s / 2 + 1.0)


def _prompt(labelled_set: str, graded_sets: Sequence[str], counts: Sequence[int]) -> str:
    others = [n for name, n in zip(graded_sets, counts, strict=True) if name != labelled_set]
    hidden = (
        f"{sum(others):,} other stars, which are not in this box"
        if others
        else "the labelled stars"
    )
    reward = f"The reward is S on {counts[0]:,} of the stars that the pipeline is run on."
    if len(graded_sets) == 1:
        reward = f"The reward is S on the {counts[0]:,} stars that the pipeline is run on."
    return render_task(
        n_labelled=_n_stars(labelled_set),
        hidden_text=hidden,
        source_text=SOURCE_TEXTS["sim" if labelled_set in SIM_SETS else "kepler"],
        reward_text=reward,
        limits=SURVEY_LIMITS,
        budget=SURVEY_BUDGET,
    )


def _readers(star_set: StarSet) -> dict[str, Any]:
    return {star: star_set.star_path(star).read_bytes for star in star_set.stars}
