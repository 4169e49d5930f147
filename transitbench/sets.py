"""A set of stars on disk: ``manifest.json``, ``stars/<star_id>.npz`` and ``truth.json``.

A manifest carries two kinds of digest. ``sha256`` of every star file (and of the truth file) are
exact and guard the copy at hand. ``digest`` identifies the set's content independently of the last
bit of a CPU's arithmetic (:mod:`transitbench.fingerprint`); results are compared by it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transitbench.errors import TransitBenchError
from transitbench.fingerprint import light_curve_fingerprint, sha256_hex, truth_fingerprint
from transitbench.home import writable_dir
from transitbench.lightcurve import LightCurve
from transitbench.truth import StarTruth, Truth, read_truth, write_truth

MANIFEST_SCHEMA = 1
Source = Literal["kepler", "sim"]


def _mac(secret: bytes, label: str) -> bytes:
    return hmac.new(secret, label.encode(), hashlib.sha256).digest()


def _opaque_name(secret: bytes, label: str) -> str:
    return base64.b32encode(_mac(secret, label)).decode().lower()[:10]


def star_id(secret: bytes, label: str) -> str:
    """Return an opaque star id: ``s`` and 10 base-32 characters of an HMAC-SHA256 of ``label``."""
    return "s" + _opaque_name(secret, label)


def secret_tag(secret: bytes) -> str:
    """Return 10 base-32 characters that tell one secret from another and nothing more about it."""
    return _opaque_name(secret, "transitbench secret tag")


def keyed_rng(secret: bytes, label: str) -> np.random.Generator:
    """Return the generator whose ``SeedSequence`` entropy is the HMAC-SHA256 of ``label``.

    Label a star's id otherwise than its generator: an id is shown and is the head of its HMAC.
    """
    return np.random.default_rng(int.from_bytes(_mac(secret, label), "big"))


@dataclass(frozen=True, slots=True)
class StarEntry:
    """One star's line in a manifest. ``fingerprint`` is the digest that survives rounding."""

    id: str
    n: int
    sha256: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a set directory holds and how it was made."""

    name: str
    source: Source
    generator: Mapping[str, Any]
    stars: tuple[StarEntry, ...]
    truth_sha256: str
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``manifest.json``."""
        return {
            "schema": MANIFEST_SCHEMA,
            "name": self.name,
            "source": self.source,
            "generator": dict(self.generator),
            "digest": self.digest,
            "truth_sha256": self.truth_sha256,
            "stars": [
                {"id": s.id, "n": s.n, "sha256": s.sha256, "fingerprint": s.fingerprint}
                for s in self.stars
            ],
        }

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read ``manifest.json``. Raises TB-E005 if it is missing or off the schema."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["schema"] != MANIFEST_SCHEMA:
                raise ValueError(f"schema {document['schema']!r} instead of {MANIFEST_SCHEMA}")
            return cls(
                name=document["name"],
                source=document["source"],
                generator=document["generator"],
                stars=tuple(StarEntry(**entry) for entry in document["stars"]),
                truth_sha256=document["truth_sha256"],
                digest=document["digest"],
            )
        except (OSError, KeyError, TypeError, ValueError) as problem:
            raise TransitBenchError(
                "TB-E005",
                f"expected a manifest of schema {MANIFEST_SCHEMA} at {path}, got {problem!r}",
                "delete the set's directory and build it again with `transitbench data build`",
            ) from problem


def set_digest(fingerprints: Iterable[tuple[str, str]], truth: Truth) -> str:
    """Return the content digest of a set from its stars' (id, fingerprint) and its truth."""
    lines = [f"{star} {fingerprint}" for star, fingerprint in sorted(fingerprints)]
    return sha256_hex("\n".join([*lines, truth_fingerprint(truth)]).encode())


@dataclass(frozen=True)
class GradedStars:
    """Stars as grading needs them, be they a set directory or drawn in memory.

    ``digest`` is that of :func:`set_digest`, over the whole set where only a part of a directory is
    graded; ``finite_times`` holds the BKJD of the cadences with finite flux, per star of ``truth``;
    ``path`` is None if the stars lie in no set directory.
    """

    name: str
    digest: str
    truth: Truth
    finite_times: Mapping[str, NDArray[np.float64]]
    path: Path | None = None


class StarSet:
    """A set directory, opened for reading.

    Parameters
    ----------
    path
        The directory.
    limit
        Use only the first ``limit`` stars in order of star id (which is a random order).
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.path = path
        self.manifest = Manifest.read(path / "manifest.json")
        ids = sorted(entry.id for entry in self.manifest.stars)
        self.stars: tuple[str, ...] = tuple(ids[:limit])

    @property
    def name(self) -> str:
        """Return the set's name as its manifest gives it."""
        return self.manifest.name

    @cached_property
    def truth(self) -> dict[str, StarTruth]:
        """The truth of the stars in use."""
        everything = read_truth(self.path / "truth.json")
        missing = [star for star in self.stars if star not in everything]
        if missing:
            raise TransitBenchError(
                "TB-E015",
                f"{self.path / 'truth.json'} lacks {len(missing)} stars of its manifest",
                "delete the set's directory and build it again with `transitbench data build`",
            )
        return {star: everything[star] for star in self.stars}

    def star_path(self, star: str) -> Path:
        """Return the path of a star's file."""
        return self.path / "stars" / f"{star}.npz"

    def light_curve(self, star: str) -> LightCurve:
        """Read one star."""
        return LightCurve.from_npz(self.star_path(star))

    def finite_times(self) -> Mapping[str, NDArray[np.float64]]:
        """BKJD of the cadences with finite flux, per star in use; a star is read when asked for."""
        return _FiniteTimes(self)

    def graded(self) -> GradedStars:
        """The stars in use, as grading needs them."""
        return GradedStars(
            self.name, self.manifest.digest, self.truth, self.finite_times(), self.path
        )


class _FiniteTimes(Mapping[str, NDArray[np.float64]]):
    """Finite times of a set's stars, read on demand and kept: scoring needs only some of them."""

    def __init__(self, star_set: StarSet) -> None:
        self._set = star_set
        self._read: dict[str, NDArray[np.float64]] = {}

    def __getitem__(self, star: str) -> NDArray[np.float64]:
        if star not in self._set.stars:
            raise KeyError(star)
        if star not in self._read:
            self._read[star] = self._set.light_curve(star).finite_time_days
        return self._read[star]

    def __iter__(self) -> Iterator[str]:
        return iter(self._set.stars)

    def __len__(self) -> int:
        return len(self._set.stars)


def write_set(
    path: Path,
    name: str,
    source: Source,
    generator: Mapping[str, Any],
    stars: Iterator[tuple[str, LightCurve, StarTruth]],
) -> StarSet:
    """Write a set directory from an iterator of (star id, light curve, truth).

    The directory is filled under a temporary name of its own beside ``path`` and renamed at the end, so
    that neither an interrupted build nor two at the same time leave a half set behind that could be taken
    for a whole one.

    Raises
    ------
    TransitBenchError
        TB-E016 if ``path`` exists already.
    """
    exists = TransitBenchError(
        "TB-E016", f"{path} exists already", "choose another --out, or delete it first"
    )
    if path.exists():
        raise exists
    writable_dir(path.parent)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        _fill_set(partial, name, source, generator, stars)
        partial.chmod(0o755)
        # Renaming onto a set that somebody else finished meanwhile fails, as its directory is not empty.
        partial.rename(path)
    except OSError as problem:
        if not path.exists():
            raise
        raise exists from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return StarSet(path)


def _fill_set(
    path: Path,
    name: str,
    source: Source,
    generator: Mapping[str, Any],
    stars: Iterator[tuple[str, LightCurve, StarTruth]],
) -> None:
    (path / "stars").mkdir()
    entries: list[StarEntry] = []
    truth: dict[str, StarTruth] = {}
    for star, light_curve, star_truth in stars:
        star_path = path / "stars" / f"{star}.npz"
        light_curve.to_npz(star_path)
        entries.append(
            StarEntry(
                id=star,
                n=len(light_curve),
                sha256=sha256_hex(star_path.read_bytes()),
                fingerprint=light_curve_fingerprint(light_curve),
            )
        )
        truth[star] = star_truth
    entries.sort(key=lambda entry: entry.id)
    write_truth(path / "truth.json", truth)
    manifest = Manifest(
        name=name,
        source=source,
        generator=generator,
        stars=tuple(entries),
        truth_sha256=sha256_hex((path / "truth.json").read_bytes()),
        digest=set_digest(((e.id, e.fingerprint) for e in entries), truth),
    )
    text = json.dumps(manifest.to_json(), indent=1, sort_keys=True)
    (path / "manifest.json").write_text(text + "\n", encoding="utf-8")


def verify_set(path: Path, on_star: Callable[[str], None] | None = None) -> Sequence[str]:
    """Recompute every digest of a set directory.

    Returns
    -------
    list of str
        What does not agree, one sentence each; empty if the set is whole.
    """
    star_set = StarSet(path)
    manifest = star_set.manifest
    problems: list[str] = []
    fingerprints: list[tuple[str, str]] = []
    for entry in manifest.stars:
        star_path = star_set.star_path(entry.id)
        try:
            data = star_path.read_bytes()
            light_curve = LightCurve.from_npz(star_path)
        except (OSError, TransitBenchError) as problem:
            problems.append(f"star {entry.id}: cannot be read ({problem})")
            continue
        if sha256_hex(data) != entry.sha256:
            problems.append(f"star {entry.id}: file sha256 differs from the manifest")
        if len(light_curve) != entry.n:
            problems.append(f"star {entry.id}: {len(light_curve)} rows instead of {entry.n}")
        fingerprint = light_curve_fingerprint(light_curve)
        if fingerprint != entry.fingerprint:
            problems.append(f"star {entry.id}: content differs from the manifest's fingerprint")
        fingerprints.append((entry.id, fingerprint))
        if on_star:
            on_star(entry.id)
    on_disk = {p.stem for p in (path / "stars").glob("*.npz")}
    for extra in sorted(on_disk - {entry.id for entry in manifest.stars}):
        problems.append(f"star {extra}: file is not in the manifest")
    if sha256_hex((path / "truth.json").read_bytes()) != manifest.truth_sha256:
        problems.append("truth.json: sha256 differs from the manifest")
    if set_digest(fingerprints, read_truth(path / "truth.json")) != manifest.digest:
        problems.append("set: digest differs from the manifest")
    return problems
