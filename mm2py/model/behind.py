"""
How far something is behind: the only rule for what is shown of a lag that is not known, or only in part.

A lag that the source did not report lately is what it was, or more. So what is known is the least that it can be, and
is marked as that; if that is 0, it is not known at all. Several together are marked as soon as one of them is.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.frozen
class Behind:
    """
    Records that are not copied yet, and how long the oldest of them has waited at most; None if unknown.

    They are not more than that unless `lag_is_least` or `lag_s_is_least`.
    """

    lag: int | None = None
    lag_s: float | None = None
    lag_is_least: bool = False
    lag_s_is_least: bool = False

    @classmethod
    def at_least(cls, lag: int | None, lag_s: float | None) -> Behind:
        """Return what is known of a lag that the source did not report lately; 0 would say that nothing is left."""
        return cls(lag or None, lag_s if lag else None, bool(lag), bool(lag and lag_s is not None))

    @classmethod
    def of(cls, view: object) -> Behind:
        """Return how far behind a *view* says that it is."""
        return cls(**{field.name: getattr(view, field.name) for field in attrs.fields(cls)})

    @classmethod
    def together(cls, each: Iterable[Behind]) -> Behind:
        """Return how far behind all of *each* are together: the sum of what is left, and the longest wait."""
        all_of = tuple(each)
        lags = [it.lag for it in all_of if it.lag is not None]
        waits = [it.lag_s for it in all_of if it.lag_s is not None]
        is_least = any(it.lag is None or it.lag_is_least for it in all_of)
        is_least_s = any(it.lag_s is None or it.lag_s_is_least for it in all_of)
        lag, lag_s = sum(lags) if lags else None, max(waits, default=None)
        lag, lag_s = (lag or None) if is_least else lag, (lag_s or None) if is_least_s else lag_s
        return cls(lag, lag_s, is_least and lag is not None, is_least_s and lag_s is not None)

    @property
    def is_known(self) -> bool:
        """Whether the number of records is exactly known."""
        return self.lag is not None and not self.lag_is_least

    @property
    def is_wait_known(self) -> bool:
        return self.lag_s is not None and not self.lag_s_is_least
