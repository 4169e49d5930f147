"""Grade planet-search pipelines on Kepler-like light curves.

Importing this package imports nothing else: the modules below it are independent rooms, and some of
them (:mod:`transitbench.runner`, :mod:`transitbench.cage`) must run where only Python is installed.
"""

__version__ = "0.1.0"
