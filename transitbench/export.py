"""Star files for other programs: Kepler-like FITS and CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from transitbench.lightcurve import BKJD_OFFSET_DAYS, LightCurve


def export_fits(light_curve: LightCurve, star: str, directory: Path) -> list[Path]:
    """Write one Kepler-like long-cadence FITS file a quarter: ``<star>-q<quarter>_llc.fits``.

    Column names, units and the header keywords that readers rely on are those of Kepler's archive files
    (KDMC-10008 §2.3.1); ``KEPLERID`` is 0 because a star's identity is not part of a set. SAP flux is
    not either, and repeats the PDCSAP flux.

    Returns
    -------
    list of Path
        The files written.
    """
    from astropy.io import fits

    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for quarter in np.unique(light_curve.quarter):
        rows = light_curve.quarter == quarter
        primary = fits.PrimaryHDU()
        header = primary.header
        header["TELESCOP"], header["INSTRUME"] = "Kepler", "Kepler Photometer"
        header["OBJECT"], header["KEPLERID"] = star, 0
        # lightkurve takes a Kepler file for a light curve if this says so.
        header["CREATOR"], header["ORIGIN"] = "transitbench lightcurve export", "transitbench"
        header["MISSION"], header["OBSMODE"], header["QUARTER"] = (
            "Kepler",
            "long cadence",
            int(quarter),
        )
        for keyword in ("kepmag", "teff", "logg", "radius"):
            value = getattr(light_curve, keyword)
            header[keyword.upper()] = value if np.isfinite(value) else None
        electrons = "e-/s"
        columns = [
            fits.Column("TIME", "D", unit="BJD - 2454833", array=light_curve.time[rows]),
            fits.Column("CADENCENO", "J", array=light_curve.cadenceno[rows]),
            fits.Column("SAP_FLUX", "E", unit=electrons, array=light_curve.flux[rows]),
            fits.Column("SAP_FLUX_ERR", "E", unit=electrons, array=light_curve.flux_err[rows]),
            fits.Column("PDCSAP_FLUX", "E", unit=electrons, array=light_curve.flux[rows]),
            fits.Column("PDCSAP_FLUX_ERR", "E", unit=electrons, array=light_curve.flux_err[rows]),
            fits.Column("SAP_QUALITY", "J", array=light_curve.quality[rows]),
        ]
        table = fits.BinTableHDU.from_columns(columns, name="LIGHTCURVE")
        table.header["BJDREFI"], table.header["BJDREFF"] = int(BKJD_OFFSET_DAYS), 0.0
        table.header["TIMEUNIT"], table.header["TIMESYS"] = "d", "TDB"
        path = directory / f"{star}-q{quarter:02d}_llc.fits"
        fits.HDUList([primary, table]).writeto(path, overwrite=True)
        written.append(path)
    return written


def export_csv(light_curve: LightCurve, star: str, directory: Path) -> list[Path]:
    """Write ``<star>.csv``: time_bkjd, flux, flux_err, quality, cadenceno, quarter. Returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{star}.csv"
    columns = (
        light_curve.time,
        light_curve.flux,
        light_curve.flux_err,
        light_curve.quality,
        light_curve.cadenceno,
        light_curve.quarter,
    )
    lines = [",".join(str(value) for value in row) for row in zip(*columns, strict=True)]
    header = "time_bkjd,flux,flux_err,quality,cadenceno,quarter"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return [path]
