"""Data: `robots/NAME.yaml`, `environments/NAME.yaml`, `peers/NAME.yaml`,
`training/ENV-ALGORITHM.yaml`.
"""
