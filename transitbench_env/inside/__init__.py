"""Programs that run inside boxes: standard library only, handed over as text."""
