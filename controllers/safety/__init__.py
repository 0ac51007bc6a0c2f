"""Safety: barriers, their conditions on accelerations, and the filter that keeps them."""
