"""Noise model and single-event statistics that a transit search, and the expected MES, stand on."""
