"""Contact and other soft constraints, as MuJoCo defines them: collision, rows, solver, derivative."""
