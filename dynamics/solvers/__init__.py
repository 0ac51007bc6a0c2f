"""Factorisations and quadratic programs of small matrices."""
