"""One star's light curve: Kepler long cadences of quarters 10–13, and the ways in and out.

Imports only numpy; astropy and lightkurve are imported where they are used, so that this module
works in boxes and starts fast.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from transitbench.errors import TransitBenchError

if TYPE_CHECKING:
    import lightkurve

BKJD_OFFSET_DAYS = 2454833.0
"""BKJD = BJD − 2454833 d (Kepler Archive Manual, KDMC-10008)."""

_ARRAYS: dict[str, np.dtype] = {
    "time": np.dtype("<f8"),
    "flux": np.dtype("<f4"),
    "flux_err": np.dtype("<f4"),
    "quality": np.dtype("<i4"),
    "cadenceno": np.dtype("<i4"),
    "quarter": np.dtype("<i1"),
}
_SCALARS = ("kepmag", "teff", "logg", "radius", "mass")
_READ_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_FILE_MTIME_S = 0


def _of_type(name: str, values: Any, dtype: np.dtype) -> NDArray:
    """Values as ``dtype``; TB-E010 where a cast would change what an integer says or drop a part."""
    array = np.asarray(values)
    is_fit = array.dtype.kind in "fiub"
    if is_fit and dtype.kind == "i":
        limits = np.iinfo(dtype)
        is_fit = bool(
            np.all((array >= limits.min) & (array <= limits.max) & (array == np.floor(array)))
        )
    if not is_fit:
        raise TransitBenchError(
            "TB-E010",
            f"light curve expected {name} to fit {dtype}, got {array.dtype} {array.ravel()[:3]}…",
            "see 'A star on disk' in the README for the format",
        )
    return np.ascontiguousarray(array, dtype=dtype)


@dataclass(frozen=True)
class LightCurve:
    """Light curve of one star, one element per long cadence, ascending in time.

    Attributes
    ----------
    time
        Mid-cadence BKJD in days, float64, shape ``(n,)``; NaN where Kepler has none.
    flux, flux_err
        PDCSAP flux and its 1-σ error in e⁻/s, float32, shape ``(n,)``; NaN where missing.
    quality
        Kepler ``SAP_QUALITY`` bits, int32, shape ``(n,)``.
    cadenceno
        Kepler long-cadence number, int32, shape ``(n,)``, strictly ascending.
    quarter
        Kepler quarter, int8, shape ``(n,)``.
    kepmag, teff, logg, radius, mass
        Star parameters (mag, K, dex, R☉, M☉); NaN where unknown.

    Raises
    ------
    TransitBenchError
        TB-E010 if the arrays disagree in shape, are not ascending, or hold no finite flux.
    """

    time: NDArray[np.float64]
    flux: NDArray[np.float32]
    flux_err: NDArray[np.float32]
    quality: NDArray[np.int32]
    cadenceno: NDArray[np.int32]
    quarter: NDArray[np.int8]
    kepmag: float = float("nan")
    teff: float = float("nan")
    logg: float = float("nan")
    radius: float = float("nan")
    mass: float = float("nan")

    def __post_init__(self) -> None:
        """Bring every field to its type and check the contract of a star file."""
        for name, dtype in _ARRAYS.items():
            object.__setattr__(self, name, _of_type(name, getattr(self, name), dtype))
        for name in _SCALARS:
            object.__setattr__(self, name, float(np.float32(getattr(self, name))))
        problem = self._problem()
        if problem:
            raise TransitBenchError(
                "TB-E010",
                f"light curve expected six aligned arrays ascending in time, got {problem}",
                "see 'A star on disk' in the README for the format",
            )

    def _problem(self) -> str | None:
        shapes = {name: getattr(self, name).shape for name in _ARRAYS}
        if len(set(shapes.values())) != 1 or len(shapes["time"]) != 1:
            return f"shapes {shapes}"
        if not self.finite.any():
            return f"no cadence with finite time and flux among {self.time.size}"
        known = self.time[np.isfinite(self.time)]
        if np.any(np.diff(known) <= 0):
            return f"times not strictly ascending at row {int(np.argmax(np.diff(known) <= 0)) + 1}"
        if np.any(np.diff(self.cadenceno) <= 0):
            row = int(np.argmax(np.diff(self.cadenceno) <= 0)) + 1
            return f"cadence numbers not strictly ascending at row {row}"
        return None

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Cadences with finite time and flux, shape ``(n,)``."""
        return np.isfinite(self.time) & np.isfinite(self.flux)

    @property
    def finite_time_days(self) -> NDArray[np.float64]:
        """BKJD of the cadences with finite time and flux, ascending."""
        return self.time[self.finite]

    def __len__(self) -> int:
        """Return the number of cadences (rows)."""
        return int(self.time.size)

    @classmethod
    def from_npz(cls, path: str | Path) -> LightCurve:
        """Read a star file.

        Raises
        ------
        TransitBenchError
            TB-E010 if the file is missing, truncated, pickled, or lacks an array.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                values: dict[str, Any] = {n: archive[n] for n in (*_ARRAYS, *_SCALARS)}
            values |= {name: float(values[name]) for name in _SCALARS}
        except _READ_ERRORS as problem:
            raise TransitBenchError(
                "TB-E010",
                f"cannot read {path} as a star file ({type(problem).__name__}: {problem})",
                "check the path, or rebuild the set and run `transitbench data verify`",
            ) from problem
        return cls(**values)

    def npz_bytes(self) -> bytes:
        """Return the star file as bytes: same light curve, same bytes, on every platform.

        Members are stored uncompressed because zlib builds differ in their output, and every ZIP
        field that would record the machine or the moment is fixed.
        """
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name in (*_ARRAYS, *_SCALARS):
                value = getattr(self, name)
                array = value if name in _ARRAYS else np.asarray(value, dtype="<f4")
                member = io.BytesIO()
                np.lib.format.write_array(member, np.asarray(array), version=(1, 0))
                info = zipfile.ZipInfo(f"{name}.npy", _ZIP_EPOCH)
                info.create_system = 3
                info.external_attr = 0o600 << 16
                archive.writestr(info, member.getvalue())
        return buffer.getvalue()

    def to_npz(self, path: str | Path) -> None:
        """Write the star file, with a modification time that says nothing."""
        Path(path).write_bytes(self.npz_bytes())
        os.utime(path, (_FILE_MTIME_S, _FILE_MTIME_S))

    @classmethod
    def from_kepler_fits(cls, paths: Iterable[str | Path]) -> LightCurve:
        """Stitch Kepler long-cadence files (one per quarter, any order) into one light curve.

        PDCSAP flux is taken as it is, without normalising quarters. Rows without a time are dropped.
        Mass is not in these files; it follows from ``logg`` and ``radius`` where both are known.

        Raises
        ------
        TransitBenchError
            TB-E010 for a file that is not a Kepler long-cadence light curve, for two stars mixed, and
            for a quarter given twice.
        """
        from astropy.io import fits

        columns: dict[int, dict[str, NDArray]] = {}
        headers: dict[int, dict[str, float]] = {}
        star: int | None = None
        for path in paths:
            try:
                with fits.open(path, memmap=False) as hdus:
                    primary, table = hdus[0].header, hdus[1].data
                    kic, mode = int(primary["KEPLERID"]), str(primary["OBSMODE"])
                    quarter = int(primary["QUARTER"])
                    rows: dict[str, NDArray] = {
                        "time": np.asarray(table["TIME"], dtype=np.float64),
                        "flux": np.asarray(table["PDCSAP_FLUX"], dtype=np.float32),
                        "flux_err": np.asarray(table["PDCSAP_FLUX_ERR"], dtype=np.float32),
                        "quality": np.asarray(table["SAP_QUALITY"], dtype=np.int32),
                        "cadenceno": np.asarray(table["CADENCENO"], dtype=np.int32),
                    }
                    read = {key: primary.get(key.upper()) for key in _SCALARS}
            except (OSError, KeyError, IndexError, TypeError, ValueError) as problem:
                raise TransitBenchError(
                    "TB-E010",
                    f"{path} is not a readable Kepler light-curve file ({problem})",
                    "fetch the file again; expected kplr<KIC>-<stamp>_llc.fits",
                ) from problem
            if not mode.startswith("long"):
                raise TransitBenchError(
                    "TB-E010", f"{path} has OBSMODE {mode!r}", "give long-cadence (_llc) files"
                )
            if star is not None and kic != star:
                raise TransitBenchError(
                    "TB-E010",
                    f"{path} is of KIC {kic}, the others of KIC {star}",
                    "give one star's files",
                )
            if quarter in columns:
                raise TransitBenchError(
                    "TB-E010", f"{path} repeats quarter {quarter}", "give each quarter once"
                )
            star = kic
            rows["quarter"] = np.full(rows["time"].size, quarter, dtype=np.int8)
            timed = np.isfinite(rows["time"])
            columns[quarter] = {name: values[timed] for name, values in rows.items()}
            headers[quarter] = {k: float(v) for k, v in read.items() if isinstance(v, (int, float))}
        if not columns:
            raise TransitBenchError("TB-E010", "no Kepler files given", "give at least one path")
        stitched: dict[str, Any]
        ordered = [columns[quarter] for quarter in sorted(columns)]
        stitched = {name: np.concatenate([part[name] for part in ordered]) for name in _ARRAYS}
        # Catalogue values were revised during the mission: the latest quarter's are used.
        header: dict[str, Any] = {
            k: v for quarter in sorted(headers) for k, v in headers[quarter].items()
        }
        if "mass" not in header and {"logg", "radius"} <= header.keys():
            header["mass"] = float(10 ** (header["logg"] - SOLAR_LOGG_CGS) * header["radius"] ** 2)
        return cls(**stitched, **header)

    def to_lightkurve(self, label: str = "") -> lightkurve.KeplerLightCurve:
        """Return the same arrays as a ``lightkurve.KeplerLightCurve`` (rows without a time left out)."""
        import lightkurve
        from astropy import units
        from astropy.time import Time

        timed = np.isfinite(self.time)
        electrons_per_second = units.electron / units.second
        curve = lightkurve.KeplerLightCurve(
            time=Time(self.time[timed], format="bkjd", scale="tdb"),
            flux=self.flux[timed] * electrons_per_second,
            flux_err=self.flux_err[timed] * electrons_per_second,
        )
        curve["quality"] = self.quality[timed]
        curve["cadenceno"] = self.cadenceno[timed]
        curve["quarter"] = self.quarter[timed]
        curve.meta["LABEL"] = label
        curve.meta["KEPMAG"] = self.kepmag
        return curve

    @classmethod
    def from_lightkurve(cls, curve: lightkurve.LightCurve) -> LightCurve:
        """Take the arrays of a lightkurve object; columns it lacks become NaN, 0 or counted cadences."""
        time = np.asarray(curve.time.value, dtype=np.float64)
        n = time.size
        column = {
            name: np.asarray(curve[name]) if name in curve.columns else None
            for name in ("quality", "cadenceno", "quarter", "flux_err")
        }

        def of(name: str, default: NDArray) -> NDArray:
            values = column[name]
            return default if values is None else values

        return cls(
            time=time,
            flux=np.ma.filled(np.ma.asarray(curve.flux.value, dtype=np.float32), np.nan),
            flux_err=of("flux_err", np.full(n, np.nan)),
            quality=of("quality", np.zeros(n)),
            cadenceno=of("cadenceno", np.arange(n)),
            quarter=of("quarter", np.full(n, int(curve.meta.get("QUARTER") or 0))),
            kepmag=float(curve.meta.get("KEPMAG") or np.nan),
        )


SOLAR_LOGG_CGS = 4.438
"""log₁₀ g☉ in cgs (IAU 2015 nominal solar values)."""


def same_light_curve(one: LightCurve, other: LightCurve) -> bool:
    """Whether two light curves are equal in every field, NaN equal to NaN."""
    return all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name), equal_nan=True)
        for f in fields(LightCurve)
    )
