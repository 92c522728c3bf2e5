"""Columns of many rows with few different values, and columns of texts that are decoded when somebody reads them.

Both are sequences and equal to the list of their rows, so code for one rollout at a time need not know. Code for a whole stage
works on numbers: a million rollouts have a few thousand cells, prompts and answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Coded(Sequence[T]):
    """N rows, of which row i is `values[codes[i]]`."""

    def __init__(self, codes: np.ndarray, values: Sequence[T]) -> None:
        self.codes, self.values = codes, values

    @classmethod
    def of(cls, rows: Iterable[T], key: Any = None) -> Coded[T]:
        """The column with these rows, its values in order of appearance. `key` tells them apart (left out: they themselves)."""
        numbers: dict[Hashable, int] = {}
        values: list[T] = []
        codes = []
        for row in rows:
            name = row if key is None else key(row)
            code = numbers.setdefault(name, len(values))
            if code == len(values):
                values.append(row)
            codes.append(code)
        return cls(np.array(codes, dtype=np.int64), values)

    @classmethod
    def sorted(cls, codes: np.ndarray, values: Sequence[T]) -> Coded[T]:
        """The column whose row i is `values[codes[i]]`; its own values are sorted, all different and all in use."""
        used = np.bincount(codes, minlength=len(values)) > 0
        ordered = sorted({value for value, one in zip(values, used, strict=True) if one})
        places = {value: place for place, value in enumerate(ordered)}
        return cls(np.array([places.get(value, -1) for value in values], dtype=np.int64)[codes], ordered)

    def among(self, values: Sequence[T]) -> np.ndarray:
        """Each row's place in `values`, -1 if it is none of them, int64 [N]."""
        places = {value: place for place, value in enumerate(values)}
        return self.map(lambda value: places.get(value, -1), np.int64)

    def map(self, function: Any, dtype: Any) -> np.ndarray:
        """`function` of each row, asked once for each value, [N]."""
        return np.array([function(value) for value in self.values], dtype=dtype)[self.codes]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)[self.codes]

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Coded[T]: ...
    def __getitem__(self, place: Any) -> Any:
        return Coded(self.codes[place], self.values) if isinstance(place, slice) else self.values[self.codes[place]]

    def __iter__(self) -> Iterator[T]:
        return map(self.values.__getitem__, self.codes.tolist())

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Coded({list(self)!r})"


class Texts(Sequence[str]):
    """N texts in Arrow's UTF-8; a row becomes a `str` when it is asked for."""

    def __init__(self, array: pa.StringArray | pa.LargeStringArray) -> None:
        self._array = array
        _, offsets, data = array.buffers()
        width = np.int64 if str(array.type) == "large_string" else np.int32
        self._offsets = np.frombuffer(offsets or bytes(8), dtype=width)[array.offset :][: len(array) + 1]
        self._data = np.frombuffer(data or b"", dtype=np.uint8)

    @cached_property
    def beyond_ascii(self) -> np.ndarray:
        """Rows with a character that is not ASCII, int64, sorted."""
        first, last = self._offsets[[0, -1]]
        found = np.flatnonzero(self._data[first:last] & 0x80)
        return np.unique(np.searchsorted(self._offsets - first, found, side="right") - 1)

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Texts: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Texts(self._array[place])
        return self._array[int(place)].as_py()

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each text, int64 [N]."""
        return np.diff(self._offsets).astype(np.int64)

    def joined(self, rows: np.ndarray) -> tuple[str, np.ndarray]:
        """(the texts of `rows`, none of them empty, one after the other; characters of each, int64 [R])."""
        sizes = self.sizes[rows]
        ends = np.cumsum(sizes)
        data = self._data[np.arange(ends[-1]) + np.repeat(self._offsets[rows] - (ends - sizes), sizes)]
        begins = (data & 0xC0) != 0x80  # all but the bytes that go on with a character
        return data.tobytes().decode(), np.add.reduceat(begins, ends - sizes, dtype=np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._array.to_pylist())

    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Texts({list(self)!r})"


def _equal(one: Sequence, other: object) -> Any:
    if not isinstance(other, Sequence) or isinstance(other, str):
        return NotImplemented
    return len(one) == len(other) and all(a == b for a, b in zip(one, other, strict=True))


def numbered(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(names, sorted; each label's place among them, int64 [N]): quick where equal labels mostly lie together."""
    first = np.concatenate([[True], labels[1:] != labels[:-1]])[: len(labels)]
    names, place = np.unique(labels[first], return_inverse=True)
    return names, place[np.cumsum(first) - 1]
