"""The robot model."""
