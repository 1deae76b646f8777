"""The binary operations of grokking research as tables of equations: x o y = z, over numbers mod p or the group S5."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

_Polynomial = Literal["x2+y2", "x2+xy+y2", "x2+xy+y2+x", "x3+xy", "x3+xy2+y"]
_InS5 = Literal["s5", "s5-conjugate", "s5-xyx"]
Operation = Literal["add", "subtract", "multiply", "divide", _Polynomial, "divide-or-subtract", _InS5]


class Equations(NamedTuple):
    """All equations of one operation: `answer[i]` is the symbol of `left[i] o right[i]`."""

    left: Tensor  # (equations,)
    right: Tensor  # (equations,)
    answer: Tensor  # (equations,)
    symbols: int  # left, right and answer lie in 0 .. symbols - 1


def make_equations(operation: Operation, *, p: int = 97, with_zero: bool = False) -> Equations:
    """All equations of an operation, x slow and y fast.

    Args:
        operation: its name. `divide-or-subtract` is x/y for odd y and x-y for even y; the members of S5 are the
            permutations of five things in lexicographic order: `s5` is x y, `s5-conjugate` x y x^-1, `s5-xyx` x y x.
        p: modulus, a prime; S5 does not use it.
        with_zero: keep y = 0 in `multiply`. The paper's text leaves nothing out, the released code does.

    Examples:
        >>> equations = make_equations("multiply", p=97)
        >>> len(equations.left), equations.symbols
        (9312, 97)
    """
    if operation not in get_args(Operation):
        raise ValueError(f"operation must be one of {', '.join(get_args(Operation))}, got {operation!r}")
    if operation in GROUP:
        return group_equations(GROUP[operation])
    check_prime(p)
    first = {"divide": 1, "multiply": 0 if with_zero else 1}.get(operation, 0)
    left, right = torch.cartesian_prod(torch.arange(p), torch.arange(first, p)).T.contiguous()
    return Equations(left, right, MODULAR[operation](left, right, p) % p, p)


MODULAR: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "add": lambda x, y, p: x + y,
    "subtract": lambda x, y, p: x - y,
    "multiply": lambda x, y, p: x * y,
    "divide": lambda x, y, p: x * inverses(p)[y],
    "x2+y2": lambda x, y, p: x * x + y * y,
    "x2+xy+y2": lambda x, y, p: x * x + x * y + y * y,
    "x2+xy+y2+x": lambda x, y, p: x * x + x * y + y * y + x,
    "x3+xy": lambda x, y, p: x * x * x + x * y,
    "x3+xy2+y": lambda x, y, p: x * x * x + x * y * y + y,
    "divide-or-subtract": lambda x, y, p: torch.where(y % 2 == 1, x * inverses(p)[y], x - y),
}

_Permutation = tuple[int, ...]
ORDER = 120  # of the group S5
LARGEST = 10**9  # modulus: to see that it is a prime takes its root in steps

GROUP: dict[str, Callable[[_Permutation, _Permutation], _Permutation]] = {
    "s5": lambda x, y: compose(x, y),
    "s5-conjugate": lambda x, y: compose(compose(x, y), invert(x)),
    "s5-xyx": lambda x, y: compose(compose(x, y), x),
}


def group_equations(rule: Callable[[_Permutation, _Permutation], _Permutation]) -> Equations:
    """All 14,400 equations of a rule over S5."""
    members = list(itertools.permutations(range(5)))
    number = {member: i for i, member in enumerate(members)}
    left, right = torch.cartesian_prod(torch.arange(ORDER), torch.arange(ORDER)).T.contiguous()
    answer = torch.tensor([number[rule(x, y)] for x in members for y in members])
    return Equations(left, right, answer, ORDER)


def compose(x: _Permutation, y: _Permutation) -> _Permutation:
    """First y, then x."""
    return tuple(x[i] for i in y)


def invert(x: _Permutation) -> _Permutation:
    return tuple(sorted(range(len(x)), key=x.__getitem__))


def inverses(p: int) -> Tensor:
    """1/y mod p at place y; 0 at place 0, which has none."""
    return torch.tensor([0, *(pow(y, -1, p) for y in range(1, p))])


def check_prime(p: int) -> None:
    if p > LARGEST:
        raise ValueError(f"p must be at most {LARGEST:,}, got {p:,}")
    if p < 2 or any(p % q == 0 for q in range(2, math.isqrt(p) + 1)):
        raise ValueError(f"p must be a prime, got {p}")
