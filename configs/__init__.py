"""Presets: one YAML file per environment and algorithm, `ENV-ALGORITHM.yaml`."""
