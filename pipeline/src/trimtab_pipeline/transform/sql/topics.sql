-- Topics -> the bundles that hold them; bundles with metrics of their own and the reports of the shards pass through.
--
-- reads  bundle_samples (columns.BUNDLE_SAMPLES), ranges (relations.RANGES), times (relations.POD_TIMES)
-- gives  columns.BUNDLE_SAMPLES without topics. Topics outside all bundles are a row without bundle, pod and report
--
-- A topic belongs to the bundle whose range holds the CRC-32 of its full name; the last hash belongs to the last range.
-- A namespace's ring has equal cells, so that a topic is compared only with the few bundles of its cell.

with rows as (              -- topics with their namespace, null unless the name is domain://tenant/namespace/topic
    select policy, shard, bundle, topic, pod, report, topics, producers, consumers,
           rate_in, rate_out, throughput_in, throughput_out,
           least(crc32(binary(topic)), 4294967294L) as place,
           case when octet_length(topic) - octet_length(replace(topic, '/', '')) = 4
                 and instr(topic, '://') = instr(topic, '/') - 1 and instr(topic, '://') > 0
                then substring_index(substring(topic, instr(topic, '://') + 3), '/', 2)
           end as namespace
    from bundle_samples
),

rings as (
    select policy, namespace, first(cells) as cells
    from ranges
    group by policy, namespace
),

placed as (
    select /*+ broadcast(n), broadcast(r) */
           s.policy, s.shard, s.pod, s.report, s.topic is not null as summed,
           coalesce(s.bundle, r.bundle) as bundle,
           s.topics, s.producers, s.consumers, s.rate_in, s.rate_out, s.throughput_in, s.throughput_out
    from rows s
    left join rings n on s.policy = n.policy and s.namespace = n.namespace
    left join ranges r on s.policy = r.policy and s.namespace = r.namespace
        and int(shiftright(s.place * n.cells, 32)) = r.cell and s.place >= r.lower and s.place < r.upper
),

idle as (                   -- every bundle whose owner is known, as if it had no topic
    select /*+ broadcast(t) */ r.policy, t.shard, r.bundle, r.owner, t.young
    from ranges r
    join times t on r.policy = t.policy and r.owner = t.pod
    where r.cell = shiftright(r.lower * r.cells, 32)    -- a bundle's first cell
),

all_rows as (
    select policy, shard, bundle, case when bundle is not null then pod end as pod, report, summed,
           string(null) as owner, boolean(null) as young,
           case when summed then 1D else topics end as topics,
           case when summed then coalesce(producers, 0D) else producers end as producers,
           case when summed then coalesce(consumers, 0D) else consumers end as consumers,
           case when summed then coalesce(rate_in, 0D) else rate_in end as rate_in,
           case when summed then coalesce(rate_out, 0D) else rate_out end as rate_out,
           case when summed then coalesce(throughput_in, 0D) else throughput_in end as throughput_in,
           case when summed then coalesce(throughput_out, 0D) else throughput_out end as throughput_out
    from placed
    union all
    select policy, shard, bundle, '' as pod, null as report, false as summed, owner, young, 0D, 0D, 0D, 0D, 0D, 0D, 0D
    from idle
),

sums as (                   -- a row per bundle and pod that reports topics of it
    select policy, shard, bundle, pod, report, summed, owner, young,
           sum(topics) as topics, sum(producers) as producers, sum(consumers) as consumers,
           sum(rate_in) as rate_in, sum(rate_out) as rate_out,
           sum(throughput_in) as throughput_in, sum(throughput_out) as throughput_out
    from all_rows
    group by policy, shard, bundle, pod, report, summed, owner, young
),

judged as (
    select *,
           count_if(owner is null) over (partition by policy, bundle) > 0 as reported,
           -- a shard without any topic tells nothing: its brokers may not export them
           count_if(summed) over shard > 0 as has_topics,
           -- the pods whose own statistics were read, where they are the source
           max(get_json_object(report, '$.answered')) over shard as answered
    from sums
    window shard as (partition by policy, shard)
)

select policy, shard, bundle, string(null) as topic, pod, rate_in, rate_out, throughput_in, throughput_out,
       topics, producers, consumers, report
from judged
where owner is null
    or not reported
        and case
            when answered is not null then array_contains(from_json(answered, 'array<string>'), owner)
            else young and has_topics
        end
