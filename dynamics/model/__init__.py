"""The robot model: topology and parameters, loading from URDF, combining, mounting, locking."""
