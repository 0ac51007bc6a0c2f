"""Environments by name: what there is, and how it is composed."""
