"""What each of JAX's primitives becomes in a scalar program, by subject."""
