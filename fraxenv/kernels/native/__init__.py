"""The native executor: a scalar program as LLVM IR, compiled for this machine."""
