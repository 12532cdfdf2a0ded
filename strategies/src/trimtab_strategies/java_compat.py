"""Orders and sums as in Java's standard library, for decisions that depend on them: hash codes, maps, queues, streams.

Pulsar sometimes takes the first entry of a hash map, or adds doubles in the map's order. Equal decisions need the same
order. `hash_order` and `concurrent_order` take the hash codes of keys in the order of insertion, and return positions
in that sequence. So they work for any kind of key. The keys must be distinct.

Not covered: chains of nine or more keys in one slot (they become trees), `Set.of` and `Map.of` (random per process).
Source: the documented behaviour of OpenJDK 17, verified against real maps (``tests/strategies/test_java.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model.cluster_load import FloatArray, IntArray

SMALLEST_TABLE = 16
"""Slots of a hash table when it gets its first key."""

_HALF = 1 << 31
_MASK = (1 << 32) - 1


def string_hashes(texts: Sequence[str]) -> IntArray:
    """``String.hashCode`` of each text: signed 32 bit, over UTF-16 code units."""
    encoded = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    lengths = np.fromiter((len(units) // 2 for units in encoded), dtype=np.int64, count=len(texts))
    units = np.frombuffer(b"".join(encoded), dtype="<u2").astype(np.uint32)
    ends = np.cumsum(lengths)
    powers = np.full(int(lengths.max(initial=0)), 31, dtype=np.uint32)
    powers[:1] = 1
    to_the_end = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    terms = np.append(units * np.cumprod(powers, dtype=np.uint32)[to_the_end], np.uint32(0))
    sums = np.add.reduceat(terms, ends - lengths, dtype=np.uint32) if len(texts) else terms[:0]
    return np.where(lengths > 0, sums, 0).astype(np.uint32).view(np.int32).astype(np.int64)


def spread(hashes: IntArray) -> npt.NDArray[np.uint32]:
    """Hash codes as a map mixes them. Their lowest bits are the slot."""
    unsigned = (hashes & _MASK).astype(np.uint32)
    return unsigned ^ (unsigned >> np.uint32(16))


def grown_table(most: int, table: int = SMALLEST_TABLE) -> int:
    """Slots of a ``HashMap`` or ``HashSet`` that began with `table` slots and held up to `most` keys; never shrinks."""
    while most > table * 3 // 4:
        table *= 2
    return table


def copied_set_table(count: int) -> int:
    """Slots of ``new HashSet<>(collection)`` of `count` keys."""
    return grown_table(count, _power_of_two(max(int(count / 0.75) + 1, SMALLEST_TABLE)))


def _power_of_two(at_least: int) -> int:
    return 1 << max(0, at_least - 1).bit_length()


def hash_order(hashes: IntArray, table: int | None = None) -> IntArray:
    """Order in which a ``HashMap`` (or set) iterates over keys with these hash codes, inserted one after the other.

    table: slots, for a map that was larger before or is a copy; by default the size that these keys need.
    Growth keeps the order inside a slot, so only the final size of the table matters.
    """
    slots = spread(hashes) & np.uint32((table or grown_table(len(hashes))) - 1)
    return np.argsort(slots, kind="stable").astype(np.int64)


def hash_map_order(names: Iterable[str], table: int | None = None) -> list[str]:
    """The names (repeated ones count once) in the order of a ``HashMap`` or ``HashSet``, see `hash_order`."""
    distinct = list(dict.fromkeys(names))
    return [distinct[k] for k in hash_order(string_hashes(distinct), table)]


def concurrent_order(hashes: IntArray) -> IntArray:
    """Order in which a ``ConcurrentHashMap`` iterates over keys with these hash codes, inserted one after the other."""
    placed = (spread(hashes) & np.uint32(_HALF - 1)).tolist()
    slots: list[list[int]] = [[] for _ in range(SMALLEST_TABLE)]
    for count, value in enumerate(placed, 1):
        slots[value & (len(slots) - 1)].append(count - 1)
        if count >= len(slots) - len(slots) // 4:
            slots = _doubled(slots, placed)
    return np.array([position for chain in slots for position in chain], dtype=np.int64)


def _doubled(slots: list[list[int]], placed: list[int]) -> list[list[int]]:
    """The table at twice its size.

    The last entries of a chain that share a new slot keep their order. The entries before them are put at the front of
    their new chains, one by one.
    """
    lower: list[list[int]] = []
    upper: list[list[int]] = []
    for chain in slots:
        high = [bool(placed[position] & len(slots)) for position in chain]
        run = next((k for k in range(len(chain) - 1, 0, -1) if high[k] != high[k - 1]), 0)
        for half, side in ((lower, False), (upper, True)):
            before = [chain[k] for k in range(run) if high[k] is side]
            half.append(before[::-1] + (chain[run:] if chain and high[run] is side else []))
    return lower + upper


def concurrent_map_order(names: Iterable[str]) -> list[str]:
    """The names (repeated ones count once) in the order of a ``ConcurrentHashMap``."""
    distinct = list(dict.fromkeys(names))
    return [distinct[k] for k in concurrent_order(string_hashes(distinct))]


def poll_order(weights: FloatArray) -> IntArray:
    """Order in which a ``PriorityQueue``, heaviest first, returns entries offered in the given order."""
    if len(np.unique(weights)) == len(weights):
        return np.argsort(-weights, kind="stable").astype(np.int64)
    heap: list[tuple[float, int]] = []
    for entry in zip(weights.tolist(), range(len(weights)), strict=True):
        _offer(heap, entry)
    return np.array([_poll(heap) for _ in range(len(heap))], dtype=np.int64)


def _offer(heap: list[tuple[float, int]], entry: tuple[float, int]) -> None:
    """Append an entry, and move it up while it is heavier than its parent."""
    place = len(heap)
    heap.append(entry)
    while place and entry[0] > heap[parent := (place - 1) >> 1][0]:
        heap[place] = heap[parent]
        place = parent
    heap[place] = entry


def _poll(heap: list[tuple[float, int]]) -> int:
    """Take the first entry. The last one replaces it, and sinks while one of its children is heavier.

    It changes places with the heavier child, or with the left one if both weigh the same.
    """
    first, last = heap[0][1], heap.pop()
    place, count = 0, len(heap)
    if not count:
        return first
    while (child := 2 * place + 1) < count:
        if child + 1 < count and heap[child + 1][0] > heap[child][0]:
            child += 1
        if last[0] >= heap[child][0]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = last
    return first


def compensated_sum(values: Iterable[float]) -> float:
    """``DoubleStream.sum``: Kahan's summation, left to right."""
    total = lost = 0.0
    for value in values:
        corrected = value - lost
        grown = total + corrected
        lost = (grown - total) - corrected
        total = grown
    return total - lost


def plain_sum(values: Iterable[float]) -> float:
    """A loop of additions, left to right. Python's own `sum` compensates from 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total
