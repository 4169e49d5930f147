"""Reports nothing on any star: the zero of the scale, S = 0."""
