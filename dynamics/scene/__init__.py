"""Scenes: a forest of bodies with all that constrains and drives it, read from MJCF or built."""
