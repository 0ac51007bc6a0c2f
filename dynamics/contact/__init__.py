"""Soft constraints, as MuJoCo defines them: collision, rows, solver, derivative."""
