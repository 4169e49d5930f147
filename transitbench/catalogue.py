"""Sets by name: which there are, where they lie, how they come into being."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transitbench.errors import TransitBenchError
from transitbench.home import data_dir, private_dir
from transitbench.sets import StarSet, secret_tag
from transitbench.simset import SIM_SETS, build_sim_set

REAL_CHECK = "real-check"


@dataclass(frozen=True, slots=True)
class SetInfo:
    """One line of the list of sets. ``n_stars`` is None for a set of as many stars as a folder has."""

    name: str
    folder: str
    summary: str
    how_to_get: str
    n_stars: int | None = None

    @property
    def made_on_first_use(self) -> bool:
        """Return whether asking for the set makes it."""
        return self.name in SIM_SETS

    @property
    def path(self) -> Path:
        """Return where the set lies, whether or not it is built."""
        return data_dir() / self.folder / self.name

    @property
    def built(self) -> bool:
        """Return whether the set is there."""
        return _is_set(self.path)


SETS: dict[str, SetInfo] = {
    info.name: info
    for info in (
        *(
            SetInfo(
                name,
                "sets",
                f"{composition.n_stars} simulated stars, {composition.n_planets} planets; made on first use",
                f"transitbench data build {name}",
                composition.n_stars,
            )
            for name, composition in SIM_SETS.items()
        ),
        SetInfo(
            REAL_CHECK,
            "sets",
            "real Kepler stars with known planets, eclipsing binaries, pulsators",
            "transitbench data build real-check --from DIR",
        ),
        SetInfo(
            "dev",
            "sets",
            "196 labelled Kepler stars",
            "`transitbench data build dev`, which comes with the next release; until then use sim-dev",
            196,
        ),
        SetInfo("A", "private", "1,000 hidden Kepler stars", "only the evaluator holds it", 1000),
        SetInfo("B", "private", "1,000 hidden Kepler stars", "only the evaluator holds it", 1000),
    )
}


def set_path(name_or_path: str) -> Path:
    """Return the directory that a name or a path means.

    Raises
    ------
    TransitBenchError
        TB-E008 if it is neither a known name nor a set directory.
    """
    if _is_set(Path(name_or_path)):
        return Path(name_or_path)
    if name_or_path in SETS:
        return SETS[name_or_path].path
    raise TransitBenchError(
        "TB-E008",
        f"{name_or_path!r} is neither a set directory nor one of {', '.join(SETS)}",
        "see `transitbench data list`",
    )


def open_set(
    name_or_path: str,
    limit: int | None = None,
    on_star: Callable[[], None] | None = None,
    jobs: int | None = None,
) -> StarSet:
    """Open a set by name or path; a simulated set that is not there yet is made.

    Parameters
    ----------
    name_or_path
        A name of :data:`SETS`, or a directory with a ``manifest.json``.
    limit
        Use only the first ``limit`` stars in order of star id.
    on_star
        Called after each star made.
    jobs
        Processes that make it, as in :func:`transitbench.simset.build_sim_set`.

    Raises
    ------
    TransitBenchError
        TB-E008 for an unknown set, TB-E001 for a private one that is not here, TB-E002 for a public
        one that has to be built first.
    """
    path = set_path(name_or_path)
    if not _is_set(path):
        info = SETS[name_or_path]
        if info.folder == "private":
            raise TransitBenchError(
                "TB-E001",
                f"set {info.name} is private and not at {info.path}",
                "grade on a simulated set, or point TRANSITBENCH_DATA at the evaluator's data",
            )
        if not info.made_on_first_use:
            raise TransitBenchError(
                "TB-E002",
                f"set {info.name} is not at {info.path}",
                f"how to get it: {info.how_to_get}",
            )
        _make_sim_set(info.name, path, on_star, jobs)
    return StarSet(path, limit)


def open_hidden_set(
    name: str,
    secret: bytes | None,
    limit: int | None = None,
    on_star: Callable[[], None] | None = None,
    jobs: int | None = None,
) -> StarSet:
    """Open the set that a submission is graded on; with a secret, a simulated one is the evaluator's own.

    Such a set is made on first use in the folder of private sets, one a secret. Its recipe is the public
    set's, its stars are not. Without a secret, and for sets that are not simulated, this is
    :func:`open_set`.

    Parameters
    ----------
    name, limit, on_star, jobs
        As in :func:`open_set`.
    secret
        As :func:`transitbench.home.evaluator_secret` gives it.

    Raises
    ------
    TransitBenchError
        As :func:`open_set`.
    """
    if not secret or name not in SIM_SETS:
        return open_set(name, limit, on_star, jobs)
    path = private_dir() / f"{name}-{secret_tag(secret)}"
    if not _is_set(path):
        _make_sim_set(name, path, on_star, jobs, secret)
    return StarSet(path, limit)


def _is_set(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def _make_sim_set(
    name: str,
    path: Path,
    on_star: Callable[[], None] | None,
    jobs: int | None,
    secret: bytes | None = None,
) -> None:
    try:
        build_sim_set(name, path, jobs, on_star, secret)
    except TransitBenchError:
        # Another process may have finished the same set first.
        if not _is_set(path):
            raise
