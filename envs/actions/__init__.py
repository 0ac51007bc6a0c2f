"""Action spaces: from numbers in [-1, 1] to controllers' targets."""
