"""Inputs that fit, for the ops whose inputs and attributes must fit each other more closely than by their types.

A recipe gets the source of chance and the attributes drawn so far, of which it may change any but the types. It returns
the inputs in order: a `Like` for a tensor whose values are open, or values, which get the type of their argument.
"""

import dataclasses
import importlib
import typing

_RECIPES = {}


@dataclasses.dataclass
class Like:
    """A tensor of this shape, whose values one of the templates of `values` may narrow."""

    shape: tuple
    draw: typing.Callable = None


def recipe(*ops):
    """Declares a function as the recipe of these ops."""

    def declare(function):
        for op in ops:
            _RECIPES[op] = function
        return function

    return declare


def of(op):
    """The recipe of an op, or None."""
    return _RECIPES.get(op)


for _name in ("arrays", "images", "indices", "linear", "randoms", "sparse", "texts", "updates", "windows"):
    importlib.import_module(f"recipes.{_name}")
