"""Runs the operator's coroutines one request at a time, with an event loop that has no clock and no sockets.

A coroutine that was started with the same input and got the same answers makes the same next request. So a number
represents a running process: its input and its answers so far. What a process does next is computed once, by running
the real coroutine from its start, and is then looked up. A waiting process can end at any time: a model then forgets
its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from asyncio import events as asyncio_events
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from objects import Answer, Objects, Request
from trimtab_operator.kube.client import Api, NotFoundError, Page, ResourceRef

Program = Callable[["MemoryApi", Any], Coroutine[Any, Any, Hashable]]
"""Production code to run: it gets an API and its input, and returns what the process remembers."""

IDLE = 0
"""The number of a process that runs nothing."""


class _NoSelector:
    """A selector that never waits: time passes when nothing else can happen."""

    def select(self, _timeout: float | None) -> list[Any]:
        return []


class QuietLoop(asyncio.BaseEventLoop):
    """An event loop whose time passes only in `sleep`, when no request is under way."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._seconds = 1000.0
        self.over = False

    def time(self) -> float:
        """Seconds."""
        return self._seconds

    def _process_events(self, _events: object) -> None:
        """There are none."""

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Call `func` immediately: a thread would make the order of events random."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (the awaiting coroutine gets it)
            future.set_exception(error)
        return future

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule as usual; once the process is `over`, do nothing."""
        if self.over:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule as usual: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def settle(self, waits: Callable[[], bool]) -> None:
        """Run until the process can only wait for an answer (`waits`), or is done."""
        before = asyncio_events._get_running_loop()
        asyncio_events._set_running_loop(self)
        try:
            while self._ready or (self._scheduled and not waits()):  # type: ignore[attr-defined]
                if not self._ready:  # type: ignore[attr-defined]
                    self._seconds = max(self._seconds, self._scheduled[0].when())  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio_events._set_running_loop(before)


class Wire:
    """The unanswered requests of one process."""

    def __init__(self, loop: QuietLoop, objects: Objects) -> None:
        self._loop, self.objects = loop, objects
        self.waiting: deque[tuple[Request, asyncio.Future[Any]]] = deque()

    async def ask(self, request: Request) -> Answer:
        """The answer to `request`. Raises its error."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        self.waiting.append((request, future))
        return await future

    def answer(self, answer: Answer) -> None:
        """Answer the oldest request."""
        _, future = self.waiting.popleft()
        if answer.error is None:
            future.set_result(answer)
        else:
            future.set_exception(answer.failure())


class MemoryApi:
    """Kube's `Api` for one process. Kinds in `modelled` go to the model; all others are answered immediately.

    known: objects of other kinds, by kind and name.
    """

    host = "memory"

    def __init__(self, wire: Wire, modelled: frozenset[str], known: Mapping[tuple[str, str], Any]) -> None:
        self.wire, self._modelled, self._known = wire, modelled, known

    @property
    def real(self) -> Api:
        """This object, typed as production code requires."""
        return cast("Api", self)

    async def _one(self, request: Request) -> dict[str, Any]:
        answer = await self.wire.ask(request)
        return self.wire.objects[answer.objects[0]]

    async def get(self, ref: ResourceRef, namespace: str, name: str) -> dict[str, Any]:
        """One object."""
        if ref.plural in self._modelled:
            return await self._one(Request("get", ref.plural, name))
        if (found := self._known.get((ref.plural, name))) is None:
            raise NotFoundError(f"{namespace}/{name}")
        return cast("dict[str, Any]", found)

    async def list(self, ref: ResourceRef, namespace: str, *_: Any, **__: Any) -> AsyncIterator[Page]:
        """All objects."""
        if ref.plural in self._modelled:
            answer = await self.wire.ask(Request("list", ref.plural, namespace))
            yield Page([self.wire.objects[number] for number in answer.objects], "1")
        else:
            yield Page([raw for (plural, _), raw in self._known.items() if plural == ref.plural], "1")

    async def create(self, ref: ResourceRef, _namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object."""
        if ref.plural in self._modelled:
            text = json.dumps(body, sort_keys=True)
            return await self._one(Request("create", ref.plural, body["metadata"]["name"], text))
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "1", "generation": 1, "uid": "u"}}

    async def patch(
        self, ref: ResourceRef, _namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Change an object."""
        if ref.plural in self._modelled and not (ref.plural == "balancingpolicies" and subresource):
            text = json.dumps(body, sort_keys=True)
            return await self._one(Request("patch", ref.plural, name, text, subresource))
        known = self._known.get((ref.plural, name), {"metadata": {"name": name, "resourceVersion": "1"}})
        return cast("dict[str, Any]", known)

    async def delete(
        self, ref: ResourceRef, _namespace: str, name: str, *, uid: str = "", resource_version: str = ""
    ) -> dict[str, Any]:
        """Delete an object."""
        if ref.plural in self._modelled:
            return await self._one(Request("delete", ref.plural, name, uid=uid, version=resource_version))
        return {}


@dataclass(slots=True)
class Node:
    """A process at one point: its next request, or what it returned (or raised) at its end.

    held: numbers of the objects that it knows.
    """

    program: str
    input: Any
    answers: tuple[Answer, ...]
    request: Request | None
    result: Any
    held: frozenset[int]
    following: dict[Answer, int] = field(default_factory=dict)


class Processes:
    """All processes that ever ran, by number."""

    def __init__(
        self,
        objects: Objects,
        programs: Mapping[str, Program],
        modelled: frozenset[str],
        known: Mapping[tuple[str, str], Any],
    ) -> None:
        self._objects, self._programs, self._modelled, self._known = objects, programs, modelled, known
        self._nodes: list[Node] = [Node("", None, (), None, None, frozenset())]
        self._starts: dict[tuple[str, Hashable], int] = {}

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def start(self, program: str, what: Hashable, held: frozenset[int] = frozenset()) -> int:
        """The number of a process that starts `program` with the input `what`. held: objects in that input."""
        if (found := self._starts.get((program, what))) is None:
            found = self._starts[program, what] = self._add(program, what, (), held)
        return found

    def answered(self, number: int, answer: Answer) -> int:
        """The number of the process after `answer`."""
        node = self._nodes[number]
        if (found := node.following.get(answer)) is None:
            held = node.held.union(answer.objects)
            found = node.following[answer] = self._add(node.program, node.input, (*node.answers, answer), held)
        return found

    def _add(self, program: str, what: Any, answers: tuple[Answer, ...], held: frozenset[int]) -> int:
        request, result = self._run(program, what, answers)
        self._nodes.append(Node(program, what, answers, request, result, held))
        return len(self._nodes) - 1

    def _run(self, program: str, what: Any, answers: tuple[Answer, ...]) -> tuple[Request | None, Any]:
        before, loop = logging.root.manager.disable, QuietLoop()
        logging.disable(logging.CRITICAL)  # failures here are intended
        wire = Wire(loop, self._objects)
        api = MemoryApi(wire, self._modelled, self._known)
        task = loop.create_task(self._programs[program](api, what))
        try:
            loop.settle(lambda: bool(wire.waiting))
            for answer in answers:
                wire.answer(answer)
                loop.settle(lambda: bool(wire.waiting))
            if task.done():
                return None, task.result()
            assert wire.waiting, f"{program} waits for nothing"
            return wire.waiting[0][0], None
        finally:
            _forget(loop, wire)
            logging.disable(before)


def _forget(loop: QuietLoop, wire: Wire) -> None:
    """End a process without letting it do anything more."""
    loop.over = True
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):  # the coroutine awaits something while it ends
            task.get_coro().close()  # type: ignore[union-attr]
    wire.waiting.clear()
    loop.close()
