"""Refresh of the brokers' load without Spark: the answers are small, and a Spark job would cost more than they do.

Shards, queries and parsing are those of a cycle. Each refresh has its own threads, which end with it: it waits for no
cycle, and the program's exit does not wait for a server that does not answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import pyarrow as pa

from trimtab_pipeline.api import Credentials
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusUnreachableError
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.spark.outcomes import as_source_error, promised, settle
from trimtab_pipeline.spark.tasks import one_list

T = TypeVar("T")
Unwanted = Callable[[], bool]


def aside(job: Callable[[Unwanted], T], deadline: float) -> Future[T]:
    """The outcome of `job` in its own thread. Its argument says whether the result is still needed.

    The future fails with `SourceUnavailableError` when nothing could be measured, or not within `deadline` seconds.
    """
    outcome: Future[T] = promised(deadline)

    def carry_out() -> None:
        try:
            value = job(outcome.done)
        except Exception as error:  # noqa: BLE001  (the future carries it)
            settle(outcome.set_exception, as_source_error(error))
        else:
            settle(outcome.set_result, value)

    threading.Thread(target=carry_out, name="glance", daemon=True).start()
    return outcome


def asked_directly(request: ReadRequest, credentials: Credentials, unwanted: Unwanted) -> pa.Table:
    """The brokers of all shards, read in parallel: columns ``brokers``, ``report`` of `tasks.ANSWER`."""
    futures: list[Future[pa.Table]] = [Future() for _ in request.shards]
    for shard, one in enumerate(futures):
        work = (request, shard, credentials, unwanted, one)
        threading.Thread(target=_ask, args=work, name=f"shard-{shard}", daemon=True).start()
    return pa.concat_tables([one.result() for one in futures])


def _ask(
    request: ReadRequest, shard: int, credentials: Credentials, unwanted: Unwanted, future: Future[pa.Table]
) -> None:
    try:
        with request.server(credentials) as server:
            fetch = partial(_query, server, request.at, unwanted)
            *measured, report = read_shard(request, shard, fetch, clock=lambda: server.clock_ahead)
        brokers = measured[0]["broker"] if measured else report["broker"].slice(length=0)
        future.set_result(pa.table({"brokers": one_list(brokers), "report": report["report"]}))
    except Exception as error:  # noqa: BLE001  (the future carries it)
        future.set_exception(error)


def _query(server: PrometheusClient, at: float, unwanted: Unwanted, promql: str) -> Samples:
    if unwanted():
        raise PrometheusUnreachableError(f"{server.url} took too long: the result is no longer needed")
    return server.query(promql, at)
