"""One line of the bench table."""

from typing import NamedTuple


class Row(NamedTuple):
    what: str
    measured: str
    limit: str
    met: bool
