"""Shapes, and the distances between them."""
