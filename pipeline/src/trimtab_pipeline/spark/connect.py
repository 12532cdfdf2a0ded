"""Spark on a Connect server (``sc://host:port``): its session, and recovery when the server restarts.

The server runs our tasks in its own Python, so it needs this package in the same version. PySpark's client waits ten
minutes for an unreachable server. Here it does not wait, because the next cycle tries again anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, cast

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark.outcomes import described, without_token
from trimtab_pipeline.spark.settings import SparkSettings

_LOGGER = logging.getLogger(__name__)
_UNKNOWN_THERE = {
    "NO_ACTIVE_SESSION",  # the client's error for a server that has changed
    "INVALID_HANDLE.SESSION_CHANGED",
    "INVALID_HANDLE.SESSION_CLOSED",
    "INVALID_HANDLE.SESSION_NOT_FOUND",
}
_STOPS_WITHIN = 15.0  # seconds
_OWN_CHANNEL = ("grpc.use_local_subchannel_pool", 1)  # a shared channel keeps waiting after the server is back


class ConnectMissingError(SourceUnavailableError):
    """PySpark's Connect client can't be loaded. The message says what to install."""


class ConnectedSpark:
    """Sessions on the Connect server ``settings.master``. The constructor raises `ConnectMissingError` without gRPC."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings, self._address = settings, without_token(settings.master)
        self._session: Any = None  # the newest ConnectSession
        missing = [name for name in ("grpc", "grpc_status", "zstandard") if find_spec(name) is None]
        if missing:
            raise ConnectMissingError(
                f"{self._address} needs {', '.join(missing)}, which is not installed: pip install 'WHEEL[connect]',"
                " with the path of your wheel of trimtab, or pip install '.[connect]' in a clone of Trimtab"
            )

    def start(self, closed: Callable[[], bool]) -> SparkSession:  # noqa: ARG002  (there is no process to stop)
        """A new session on the server. If the server has another version of Spark, that is logged: cycles may fail."""
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415  (needs gRPC)
        from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415

        builder = DefaultChannelBuilder(self._settings.master, [_OWN_CHANNEL])
        self._session = session = cast("SparkSession", ConnectSession(connection=builder))
        try:
            self._configure(session)
        except Exception:
            self.forget(session)
            raise
        return session

    def _configure(self, session: SparkSession) -> None:
        session.client.set_retry_policies([])
        for key, value in self._settings.sql_options().items():
            session.conf.set(key, value)
        if session.version != pyspark.__version__:
            _LOGGER.warning(
                "the Spark Connect server %s is Spark %s, and this program's PySpark is %s: cycles may fail; "
                "install the same version on both sides",
                self._address,
                session.version,
                pyspark.__version__,
            )

    def lost(self, session: SparkSession) -> str:
        """Why the server no longer knows the session, and what happens next; empty while it does."""
        try:
            session.conf.get("spark.sql.session.timeZone")
        except PySparkException as error:
            cause = "it was restarted" if error.getCondition() in _UNKNOWN_THERE else described(error)
            return f"the Spark Connect server {self._address} lost the session ({cause}); making another one"
        return ""

    def forget(self, session: SparkSession) -> None:
        """Close a session that the server has lost."""
        with suppress(PySparkException):
            session.client.close()

    def give_up(self, why: str) -> None:
        """Close the channel, and log why. PySpark's own `close` would first wait for calls that do not return."""
        _LOGGER.warning("%s; closing the connection to the Spark Connect server %s", why, self._address)
        if self._session is not None:
            self._session.client._channel.close()  # noqa: SLF001  (as above)
            self.forget(self._session)

    def stop(self, session: SparkSession) -> None:
        """Release the session on the server, which keeps running."""
        session.stop()

    def await_stop(self, stopped: Future[None]) -> None:
        """Wait for `stop`, and close the channel if it hangs."""
        if not wait([stopped], timeout=_STOPS_WITHIN).done:
            self.give_up(f"the session did not stop within {_STOPS_WITHIN:g} s")
