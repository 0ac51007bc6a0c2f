"""Safety: barriers, their conditions on torques, and the filter that holds them."""
