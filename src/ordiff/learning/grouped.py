"""Parameters of an estimator that are groups: their members can be read and set by name, as in a grid search."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self

from sklearn.base import BaseEstimator

from ordiff.learning.settings import GROUPS, group_of
from ordiff.states import States


class GroupedParameters(BaseEstimator):
    """An estimator some of whose parameters are groups of settings (`ordiff.learning.settings`)."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings; with ``deep`` also the members of the groups, as smoothness__noise."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name in (*GROUPS, "states"):
                params |= {f"{name}__{member}": value for member, value in self._members(name).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings; a member of a group by its name, as smoothness__noise."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        for full, value in params.items():
            name, nested, member = full.partition("__")
            if not nested:
                continue
            members = self._members(name)
            if member not in members:
                options = ", ".join(f"{name}__{one}" for one in members) or ", ".join(super().get_params(deep=False))
                raise ValueError(f"{type(self).__name__} has no setting {full!r} as it is; it has {options}.")
            setattr(self, name, replace(group_of(getattr(self, name), name), **{member: value}))
        return self

    def _members(self, name: str) -> dict[str, Any]:
        """The members of the group that a parameter stands for; none when it stands for something else."""
        if name != "states" and name not in GROUPS:
            return {}
        try:
            group = group_of(getattr(self, name), name)
        except ValueError:  # `fit` says what is wrong
            return {}
        return {} if isinstance(group, States) else {one.name: getattr(group, one.name) for one in fields(group)}
