"""Data: `robots/NAME.yaml`, `environments/NAME.yaml`, `training/ENV-ALGORITHM.yaml`."""
