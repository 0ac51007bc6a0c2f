"""Linear algebra."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..evaluator import Evaluator
from ..program import IdArray
from .registry import result_dtype, rule


@rule("cholesky")
def _cholesky(ev: Evaluator, equation: Any, matrix: IdArray) -> IdArray:
    """Lower factor of the matrices' lower triangles, row by row (Golub and Van Loan, 4.2).

    NaN where a matrix is not positive definite, but for zeros that are known.
    """
    n = matrix.shape[-1]
    one, zero, nan = (ev.full((), k, result_dtype(equation)) for k in (1, 0, np.nan))
    factors = []
    for A in matrix.reshape(-1, n, n):
        L = np.full((n, n), int(zero))
        inverse = []
        indefinite = ev.full((), False, bool)
        for j in range(n):
            for i in range(j, n):
                total = np.array(A[i, j])
                for k in range(j):
                    total = ev.map("sub", total, ev.map("mul", L[i, k], L[j, k]))
                if i == j:
                    indefinite = ev.map("or", indefinite, ev.map("le", total, zero))
                    L[j, j] = ev.map("sqrt", total)
                    inverse.append(ev.map("div", one, L[j, j]))
                else:
                    L[i, j] = ev.map("mul", total, inverse[j])
        # As LAPACK reports it: of the whole matrix. Zeros that are known stay so, and products with
        # the factor sparse.
        failed = ev.map("select", indefinite, nan, L)
        factors.append(np.where(zero == L, L, failed))
    return np.array(factors).reshape(matrix.shape)


@rule("triangular_solve")
def _triangular_solve(ev: Evaluator, equation: Any, a: IdArray, b: IdArray) -> IdArray:
    p = equation.params
    n = a.shape[-1]
    one = ev.full((), 1, result_dtype(equation))
    solutions = []
    for A, B in zip(a.reshape(-1, n, n), b.reshape(-1, *b.shape[-2:]), strict=True):
        lower = p["lower"]
        if p["transpose_a"]:
            A, lower = A.T, not lower
        if not p["left_side"]:  # X A = B is A^T X^T = B^T
            A, B, lower = A.T, B.T, not lower
        X = np.array(B)
        order = range(n) if lower else range(n - 1, -1, -1)
        for count, i in enumerate(order):
            for k in itertools.islice(order, count):
                X[i] = ev.map("sub", X[i], ev.map("mul", A[i, k], X[k]))
            if not p["unit_diagonal"]:
                X[i] = ev.map("mul", X[i], ev.map("div", one, A[i, i]))
        solutions.append(X if p["left_side"] else X.T)
    return np.array(solutions).reshape(b.shape)
