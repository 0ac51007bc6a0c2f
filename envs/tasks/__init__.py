"""Tasks: initial states, observations, rewards, measures."""
