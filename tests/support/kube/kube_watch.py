"""Watches one collection of a real API server in its own thread, also across restarts of the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any, Protocol

from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

Raw = Mapping[str, Any]

_AGAIN = 0.2
"""Seconds until the next attempt after the server was unavailable."""


class Eyes(Protocol):
    """Receives the objects and their changes."""

    def listed(self, items: Iterable[Raw]) -> None:
        """Replace all objects."""

    def see(self, kind: str, item: Raw) -> None:
        """One event: ADDED, MODIFIED or DELETED."""


class Watch(threading.Thread):
    """Shows `eyes` every object of the collection at `path` and all changes, until it is stopped."""

    def __init__(self, rest: KubeRest, path: str, eyes: Eyes) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._rest, self._path, self._eyes = rest, path, eyes
        self._end, self._version = threading.Event(), ""

    def run(self) -> None:
        """List, then watch. Continue after a gap, or list again when the gap is too long."""
        while not self._end.is_set():
            try:
                self._look()
            except KubeApiError:
                self._version = ""
                self._end.wait(_AGAIN)
            except (OSError, HTTPException, json.JSONDecodeError):
                self._end.wait(_AGAIN)

    def _look(self) -> None:
        if not self._version:
            listed = self._rest.get(self._path)
            self._eyes.listed(listed["items"])
            self._version = listed["metadata"]["resourceVersion"]
        for event in self._rest.follow(self._path, self._version, self._end):
            if event["type"] == "ERROR":
                self._version = ""
                return
            self._version = event["object"]["metadata"]["resourceVersion"]
            self._eyes.see(event["type"], event["object"])

    def stop(self) -> None:
        """Stop within a second."""
        self._end.set()
