"""The rules of JAX's primitives, by subject."""
