"""Sums the load of a million topics by bundle: as two Spark tasks do, a shard each, and with the same join in SQL.

A task's time is measured from the bodies of six answers to the rows of bundles: parsing, joining the six, hashing
names, finding their ranges, and summing. HTTP is left out, because its time depends on Prometheus. Each shard runs in a
process of its own, as in Spark. For SQL the topics are already in Parquet files. In practice the topics would first
have to be transferred from the task into the JVM. The time for that is not counted.

The task that reads the topics of the hottest bundles is measured, too: what it sends to the driver, and its peak
memory. They are compared with those of a task that sends every topic of the same namespaces.

    python benchmarks/pipeline.py --topics
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.prometheus.queries import TOPICS
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples, VectorParser, parse_vector
from trimtab_pipeline.prometheus.shard_reader import read_bundles, read_topics
from trimtab_pipeline.transform.relations import POD_TIMES
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_pipeline.transform.topics import summed
from trimtab_strategies.hash_ring import bundle_names, default_boundaries

SHARDS, PODS, NAMESPACES, BUNDLES_EACH = 2, 100, 1_000, 60
COLUMNS = ("topic", "pod", *TOPICS.columns)
SQL = """
select r.bundle, t.pod, sum(rate_in), sum(rate_out), sum(throughput_in), sum(throughput_out), sum(producers),
       sum(consumers), count(*)
from (select *, crc32(cast(topic as binary)) as place,
             concat_ws('/', split_part(topic, '/', 3), split_part(topic, '/', 4)) as namespace from {topics}) t
join {ranges} r on t.namespace = r.namespace and t.place >= r.lower and t.place < r.upper
group by r.bundle, t.pod
"""


def cluster() -> HashRanges:
    """60,000 bundles of 1,000 namespaces, spread over the pods."""
    spaces = [f"tenant-{k % 40:02d}/namespace-{k:04d}" for k in range(NAMESPACES)]
    ranges = HashRanges.of([name for space in spaces for name in bundle_names(space, default_boundaries(BUNDLES_EACH))])
    owner = np.random.default_rng(3).integers(0, PODS, len(ranges))
    return ranges.owned(tuple(f"pulsar-broker-{k}" for k in range(PODS)), owner)


def shard_of(shard: int, topics: int, ranges: HashRanges) -> pa.Table:
    """The topics whose bundles are on the shard's pods, with loads."""
    chance = np.random.default_rng(1)
    space = chance.integers(0, NAMESPACES, topics)
    names = pa.array([f"persistent://{ranges.namespaces[k]}/orders-{i}-partition-{i % 8}" for i, k in enumerate(space)])
    owner = ranges.owner[ranges.place(names)[0]]
    ours = np.flatnonzero(owner % SHARDS == shard)
    pods = pa.array(ranges.pods).take(pa.array(owner[ours]))
    loads = [pa.array(np.round(chance.lognormal(2, 2, len(ours)), 3)) for _ in TOPICS.columns]
    return pa.table([names.take(pa.array(ours)), pods, *loads], names=COLUMNS)


def body(table: pa.Table, column: str) -> bytes:
    """The answer of Prometheus about one column."""
    rows = zip(*(table[name].to_pylist() for name in ("topic", "pod", column)), strict=True)
    series = (f'{{"metric":{{"topic":"{t}","pod":"{p}"}},"value":[1750000000.000,"{v}"]}}' for t, p, v in rows)
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{",".join(series)}]}}}}'.encode()


def work(shard: int, topics: int, runs: int) -> dict[str, float]:
    """Median seconds of one shard's task, and of its parsing, over `runs`; ``cpu`` is the task's processor time."""
    ranges = cluster()
    table = shard_of(shard, topics, ranges)
    bodies = {column: body(table, column) for column in TOPICS.columns}
    request = ReadRequest(
        "http://unused", 1.0, 1.0, (ShardRequest((), topics={name: name for name in TOPICS.columns}),)
    )
    whole, parsing, cpu = [], [], []
    for _ in range(runs + 1):
        begin, used, parsed = time.perf_counter(), time.process_time(), 0.0

        def fetch(column: str, _: float) -> Samples:
            nonlocal parsed
            at = time.perf_counter()
            answer = parse_vector(bodies[column])
            parsed += time.perf_counter() - at
            return answer

        *rows, _ = read_bundles(request, 0, fetch)
        sums = summed(pa.Table.from_batches(rows), ranges, POD_TIMES.empty_table())
        whole.append(time.perf_counter() - begin)
        parsing.append(parsed)
        cpu.append(time.process_time() - used)
    assert pc.sum(sums["topics"]).as_py() == len(table)
    size = sum(map(len, bodies.values())) / 1e6
    middle: Mapping[str, list[float]] = {"task": whole[1:], "parsing": parsing[1:], "cpu": cpu[1:]}
    return {name: round(statistics.median(v), 2) for name, v in middle.items()} | {"topics": len(table), "MB": size}


def hot(topics: int, every: bool) -> dict[str, float]:  # noqa: FBT001
    """A shard's task that reads topics: its seconds, the rows and MB that it sends, and the growth of its memory in MB.

    One bundle of each namespace is hot, so that the queries select every topic. every: whether the task keeps them all.
    """
    ranges = cluster()
    table = shard_of(0, topics, ranges)
    bodies = {column: body(table, column) for column in TRAFFIC}
    one_each = np.unique(ranges.namespace, return_index=True)[1]
    wanted = [f"{name}/0x00000000_0xffffffff" for name in ranges.namespaces] if every else ranges.names(one_each)
    shard = ShardRequest((), topics={name: name for name in TOPICS.columns})
    request = ReadRequest("http://unused", 1.0, 600.0, (shard,), budget=600.0, bundles=tuple(wanted))
    parser = VectorParser()

    def fetch(column: str, _: float) -> Samples:
        return parser.parse(bytes(bytearray(bodies[column])))  # a copy, as from the network

    before, begin = _peak(), time.perf_counter()
    rows = list(read_topics(request, 0, fetch))
    took, grown = time.perf_counter() - begin, _peak() - before
    sent = sum(one.num_rows for one in rows), sum(one.nbytes for one in rows)
    return {"seconds": round(took, 2), "rows": sent[0], "MB": round(sent[1] / 1e6, 2), "memory": grown}


def _peak() -> int:
    """Peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_sql(topics: int, runs: int) -> dict[str, float]:
    """Seconds of the same sums in SQL on two cores."""
    ranges = cluster()
    rows = np.arange(len(ranges))
    where = {"bundle": ranges.names(rows), "namespace": [ranges.namespaces[k] for k in ranges.namespace]}
    spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({**where, "lower": ranges.lower, "upper": ranges.upper}), Path(folder, "ranges"))
        for shard in range(SHARDS):
            pq.write_table(shard_of(shard, topics, ranges), Path(folder, f"topics-{shard}"))
        took = []
        for _ in range(runs + 1):
            begin = time.perf_counter()
            frames = {
                "topics": spark.read.parquet(*(str(Path(folder, f"topics-{k}")) for k in range(SHARDS))),
                "ranges": spark.read.parquet(str(Path(folder, "ranges"))),
            }
            found = spark.sql(SQL, **frames).toArrow()
            took.append(time.perf_counter() - begin)
    spark.stop()
    return {"seconds": round(statistics.median(took[1:]), 2), "first": round(took[0], 2), "rows": len(found)}


def tell(topics: int = 1_000_000, runs: int = 5) -> None:
    """Measure and print. runs: number of measured runs, after one to warm up."""
    with ProcessPoolExecutor(SHARDS) as processes:
        several = (range(SHARDS), [topics] * SHARDS, [runs] * SHARDS)
        for shard, result in enumerate(processes.map(work, *several)):
            print(f"shard {shard}: {result}")
    for every in (True, False):
        with ProcessPoolExecutor(1) as process:
            print(f"topics of {'all' if every else 'hot'} bundles: {process.submit(hot, topics, every).result()}")
    print(f"SQL: {in_sql(topics, runs)}")
