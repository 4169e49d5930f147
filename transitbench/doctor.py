"""What a machine can run: one function per question, each with the way to mend what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from transitbench import __version__
from transitbench.catalogue import SETS
from transitbench.errors import TransitBenchError
from transitbench.findings import Finding
from transitbench.grading import RECORDED_PACKAGES
from transitbench.home import data_dir, evaluator_secret


def examine_sandbox() -> Finding:
    """Start a real cage."""
    from transitbench.cage import probe_cage

    try:
        description = probe_cage()
    except TransitBenchError as error:
        return Finding("fail", "sandbox", f"{error.code} {error.what} → {error.hint}")
    return Finding("pass", "sandbox", str(description))


def examine_cores() -> Finding:
    """Count the cores and the memory that grading may use."""
    from transitbench.runner import usable_cores

    n_cores = len(usable_cores())
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = f"{n_cores} cores usable, {gib:.0f} GiB memory"
    if gib < 2 * n_cores:
        return Finding(
            "note", "cores", f"{text}: use --jobs {max(1, int(gib // 2))} (2 GiB a star)"
        )
    return Finding("pass", "cores", text)


def examine_data_dir() -> Finding:
    """Check that runs and sets can be written."""
    try:
        path = data_dir()
    except TransitBenchError as error:
        return Finding("fail", "TRANSITBENCH_DATA", f"{error.code} {error.what} → {error.hint}")
    origin = "set" if os.environ.get("TRANSITBENCH_DATA") else "not set, default"
    return Finding("pass", "TRANSITBENCH_DATA", f"{path} ({origin})")


def examine_sets() -> Finding:
    """Tell which sets are here."""
    try:
        built = [info.name for info in SETS.values() if info.built]
    except TransitBenchError as error:
        return Finding("fail", "sets", f"{error.code} {error.what} → {error.hint}")
    absent = [info.name for info in SETS.values() if info.name not in built]
    text = f"here: {', '.join(built) or 'none'}; not here: {', '.join(absent) or 'none'}"
    return Finding("pass", "sets", f"{text} (simulated sets are made on first use)")


def examine_secret() -> Finding:
    """Tell whether hidden simulated stars are the evaluator's own."""
    if evaluator_secret() is not None:
        return Finding("pass", "TRANSITBENCH_SECRET", "set: it draws hidden simulated stars")
    text = "not set: everyone can make the hidden simulated stars of sets and mini tasks"
    return Finding("note", "TRANSITBENCH_SECRET", f"{text}; set it to evaluate models")


def examine_prime() -> Finding:
    """Tell whether Prime sandboxes could be used; grading on this machine needs none."""
    installed = importlib.util.find_spec("prime_sandboxes") is not None
    config = Path.home() / ".prime" / "config.json"
    logged_in = bool(os.environ.get("PRIME_API_KEY")) or config.is_file()
    if installed and logged_in:
        return Finding("pass", "Prime", "client installed, logged in")
    missing = [
        text
        for text, there in (("client not installed", installed), ("no login", logged_in))
        if not there
    ]
    return Finding("note", "Prime", f"{', '.join(missing)}; only needed for Prime sandboxes")


def examine_versions() -> Finding:
    """List the versions that results are recorded with."""
    versions = [f"{package} {metadata.version(package)}" for package in RECORDED_PACKAGES]
    text = f"transitbench {__version__}, Python {platform.python_version()}, {', '.join(versions)}"
    return Finding("pass", "versions", text)


EXAMINATIONS: tuple[Callable[[], Finding], ...] = (
    examine_sandbox,
    examine_cores,
    examine_data_dir,
    examine_sets,
    examine_secret,
    examine_prime,
    examine_versions,
)


def examine_machine() -> list[Finding]:
    """Answer every question."""
    return [examine() for examine in EXAMINATIONS]
