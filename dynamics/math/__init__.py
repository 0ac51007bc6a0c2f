"""Linear algebra, rotations and spatial vectors: what has no robot in it."""
