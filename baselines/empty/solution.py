"""Reports nothing on any star: S is exactly 0."""
