"""The text of a task: ``templates/TASK.md`` filled in from what enforces each number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

import jinja2

from transitbench.cage import Limits
from transitbench.grading import RECORDED_PACKAGES
from transitbench.inject import MIN_TRANSITS, PERIOD_RANGE_DAYS
from transitbench.match import FULL_ALIGNMENT, MAX_ROWS, MIN_TIMING_TOLERANCE_DAYS, PERIOD_TOLERANCE
from transitbench.submission import MAX_BYTES, MAX_ENTRIES
from transitbench_env.images import BOX_REQUIREMENTS

BOX_PYTHON = "3.11"
"""Python of the images; a local box has the host's."""


SOURCE_TEXTS = {
    "sim": " The stars are simulated on Kepler's own cadences, gaps and flags; the signals are injected into them.",
    "kepler": " The stars are Kepler's; the planets' signals are injected into them.",
}
"""What kind of stars they are, by a set's source."""


@dataclass(frozen=True)
class Budget:
    """What a session may use. Turns and tokens are enforced by a run's config (``configs/*.toml``)."""

    session_s: float
    turns: int
    tokens: int
    shell_limit_s: float
    cpus: int
    memory_gb: int
    disk_gb: int


def pinned_packages() -> dict[str, str]:
    """Return the packages that a submission may use, with the versions that boxes are pinned to."""
    text = BOX_REQUIREMENTS.read_text("utf-8")
    versions = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", text, re.MULTILINE))
    return {name: versions[name] for name in RECORDED_PACKAGES}


def render_task(
    *,
    n_labelled: int,
    hidden_text: str,
    source_text: str,
    reward_text: str,
    limits: Limits,
    budget: Budget,
) -> str:
    """Return TASK.md, which is also the prompt."""
    template = resources.files("transitbench_env").joinpath("templates", "TASK.md")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    hours = budget.session_s / 3600
    return environment.from_string(template.read_text("utf-8")).render(
        n_labelled=n_labelled,
        hidden_text=hidden_text,
        source_text=source_text,
        reward_text=reward_text,
        max_rows=MAX_ROWS,
        min_period_days=f"{PERIOD_RANGE_DAYS[0]:g}",
        max_period_days=f"{PERIOD_RANGE_DAYS[1]:g}",
        period_percent=f"{100 * PERIOD_TOLERANCE:g}",
        aligned_percent=f"{100 * FULL_ALIGNMENT:g}",
        tolerance_minutes=f"{MIN_TIMING_TOLERANCE_DAYS * 1440:.0f}",
        min_transits=MIN_TRANSITS,
        wall_s=f"{limits.wall_s:g}",
        memory_gib=f"{limits.memory_bytes / 2**30:g}",
        processes=limits.processes,
        stdout_mib=f"{limits.stdout_bytes / 2**20:g}",
        scratch_mib=f"{limits.scratch_bytes / 2**20:g}",
        solution_mib=f"{MAX_BYTES / 2**20:g}",
        solution_entries=f"{MAX_ENTRIES:,}",
        python=BOX_PYTHON,
        packages=", ".join(f"{name} {version}" for name, version in pinned_packages().items()),
        session_text=f"{hours:g} hour{'' if hours == 1 else 's'}",
        turns=budget.turns,
        tokens=f"{budget.tokens:,}",
        shell_limit_s=f"{budget.shell_limit_s:g}",
        cpus=budget.cpus,
        box_memory_gib=budget.memory_gb,
    )
