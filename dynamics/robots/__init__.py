"""Robots that ship with the package, as data: see `fraxenv.dynamics.load_robot`."""
