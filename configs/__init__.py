"""Presets: `environments/NAME.yaml` for `fraxenv.make`, `training/ENV-ALGORITHM.yaml`."""
