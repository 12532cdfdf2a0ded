-- Topics -> their bundles. Bundles with metrics of their own, and the reports of the shards, pass through.
--
-- reads  bundle_samples (columns.BUNDLE_SAMPLES), ranges (relations.RANGES), times (relations.POD_TIMES)
-- gives  columns.BUNDLE_SAMPLES without topics. Topics outside all bundles are a row without bundle, pod and report
--
-- A topic belongs to the bundle whose range contains the CRC-32 of its full name. The last hash belongs to the last
-- range. A namespace's ring has equal cells, so that a topic is compared only with the few bundles of its cell.

-- Topics with their namespace, null for names of unknown kinds: see `topic_to_bundle.namespaces_of`.
from {bundle_samples}
|> extend least(crc32(binary(topic)), 4294967294L) as place,
       case when topic rlike r'\A(non-)?persistent://[^/]+/[^/]+/[^/]+\z'
             or topic rlike r'(?s)\Asegment://[^/]+/[^/]+/.+/[0-9a-f]+-[0-9a-f]+-[0-9]+\z'
            then substring_index(substring(topic, instr(topic, '://') + 3), '/', 2)
       end as namespace

|> as s
|> left join (from {ranges} |> aggregate first(cells) as cells group by policy, namespace) as ring
       on s.policy = ring.policy and s.namespace = ring.namespace
|> left join {ranges} as r
       on s.policy = r.policy and s.namespace = r.namespace
       and int(shiftright(s.place * ring.cells, 32)) = r.cell and s.place >= r.lower and s.place < r.upper
|> select /*+ broadcast(ring), broadcast(r) */
       s.policy, s.shard, coalesce(s.bundle, r.bundle) as bundle,
       case when coalesce(s.bundle, r.bundle) is not null then s.pod end as pod,
       s.report, s.topic is not null as summed, string(null) as owner, boolean(null) as young,
       if(s.topic is null, s.topics, 1D) as topics,
       if(s.topic is null, producers, coalesce(producers, 0D)) as producers,
       if(s.topic is null, consumers, coalesce(consumers, 0D)) as consumers,
       if(s.topic is null, rate_in, coalesce(rate_in, 0D)) as rate_in,
       if(s.topic is null, rate_out, coalesce(rate_out, 0D)) as rate_out,
       if(s.topic is null, throughput_in, coalesce(throughput_in, 0D)) as throughput_in,
       if(s.topic is null, throughput_out, coalesce(throughput_out, 0D)) as throughput_out

-- Every bundle whose owner is known, as if it had no topic. It is taken once, from the first cell that it touches.
|> union all (
    from {ranges} as r
    |> join {times} as t on r.policy = t.policy and r.owner = t.pod
    |> where r.cell = shiftright(r.lower * r.cells, 32)
    |> select /*+ broadcast(t) */
           r.policy, t.shard, r.bundle, '' as pod, string(null) as report, false as summed, r.owner, t.young,
           0D as topics, 0D as producers, 0D as consumers,
           0D as rate_in, 0D as rate_out, 0D as throughput_in, 0D as throughput_out
)

-- A row per bundle and pod that reports topics of it.
|> aggregate
       sum(topics) as topics, sum(producers) as producers, sum(consumers) as consumers,
       sum(rate_in) as rate_in, sum(rate_out) as rate_out,
       sum(throughput_in) as throughput_in, sum(throughput_out) as throughput_out
   group by policy, shard, bundle, pod, report, summed, owner, young

-- In a shard without topics nothing is known of idle bundles, because its brokers may not export topics. If the
-- brokers' own statistics are the source, its report names the pods that answered.
|> select *,
       count_if(owner is null) over (partition by policy, bundle) > 0 as reported,
       count_if(summed) over this_shard > 0 as has_topics,
       max(get_json_object(report, '$.answered')) over this_shard as answered
   window this_shard as (partition by policy, shard)
|> where owner is null
       or not reported
           and case
               when answered is not null then array_contains(from_json(answered, 'array<string>'), owner)
               else young and has_topics
           end
|> select policy, shard, bundle, string(null) as topic, pod, rate_in, rate_out, throughput_in, throughput_out,
       topics, producers, consumers, report
