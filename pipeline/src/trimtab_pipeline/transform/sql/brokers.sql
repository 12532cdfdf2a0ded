-- The signals of pods -> a row per broker of the topology, with the limits that count and the age of its samples.
--
-- reads  signals (relations.SIGNALS), targets (relations.TARGETS), cycles (relations.CYCLES)
-- gives  relations.BROKER_LOAD with an empty doubt; the reports of the shards pass through

with pods as (              -- a row per pod, and one per report
    select policy, pod, report,
           max(value) filter (where signal = 'cpu') as cpu,
           max(value) filter (where signal = 'cpu_limit') as cpu_limit,
           max(value) filter (where signal = 'memory') as memory,
           max(value) filter (where signal = 'memory_limit') as memory_limit,
           max(value) filter (where signal = 'direct_memory') as direct_memory,
           max(value) filter (where signal = 'network_in') as network_in,
           max(value) filter (where signal = 'network_out') as network_out,
           max(value) filter (where signal = 'network_limit') as network_limit,
           max(value) filter (where signal = 'throttled') as throttled,
           max(value) filter (where signal = 'rate_in') as rate_in,
           max(value) filter (where signal = 'rate_out') as rate_out,
           max(value) filter (where signal = 'throughput_in') as throughput_in,
           max(value) filter (where signal = 'throughput_out') as throughput_out,
           max(value) filter (where signal = 'resource_time') as resource_time,
           max(value) filter (where signal = 'traffic_time') as traffic_time,
           max(value) filter (where signal = 'ahead') as ahead,
           max(case when resets is not null then samples end) filter (where signal = 'cpu') as samples,
           max(resets) filter (where signal in ('cpu', 'network_in', 'network_out')) as resets,
           max(copies) as copies,
           max(time) filter (where signal = 'cpu') as cpu_time,
           max(time) filter (where signal = 'memory') as memory_time,
           max(time) filter (where signal = 'direct_memory') as direct_memory_time,
           max(time) filter (where signal = 'network_in') as network_in_time,
           max(time) filter (where signal = 'network_out') as network_out_time,
           max(interval) filter (where signal = 'cpu') as cpu_interval,
           max(interval) filter (where signal = 'memory') as memory_interval,
           max(interval) filter (where signal = 'direct_memory') as direct_memory_interval,
           max(interval) filter (where signal = 'network_in') as network_in_interval,
           max(interval) filter (where signal = 'network_out') as network_out_interval,
           max(cover) filter (where signal = 'cpu') as cpu_cover,
           max(cover) filter (where signal = 'memory') as memory_cover,
           max(cover) filter (where signal = 'direct_memory') as direct_memory_cover,
           max(cover) filter (where signal = 'network_in') as network_in_cover,
           max(cover) filter (where signal = 'network_out') as network_out_cover
    from signals
    group by policy, pod, report
),

brokers as (                -- a row per broker of the topology, measured or not, and one per report
    select coalesce(t.policy, p.policy) as policy,
           coalesce(t.shard, int(get_json_object(p.report, '$.shard'))) as shard,
           t.broker,
           coalesce(t.pod, p.pod) as pod,
           cpu, cpu_limit, memory, memory_limit, direct_memory, network_in, network_out, network_limit, throttled,
           rate_in, rate_out, throughput_in, throughput_out,
           coalesce(p.resource_time, t.last_resource_time) as resource_time,
           coalesce(p.traffic_time, t.last_traffic_time) as traffic_time,
           samples, resets, copies, ahead,
           cpu_time, memory_time, direct_memory_time, network_in_time, network_out_time, cpu_interval,
           memory_interval, direct_memory_interval, network_in_interval, network_out_interval, cpu_cover,
           memory_cover, direct_memory_cover, network_in_cover, network_out_cover,
           cpu_declared, memory_declared, direct_memory_declared, network_in_declared, network_out_declared,
           report
    from targets t
    full outer join pods p on t.policy = p.policy and t.pod = p.pod
    where t.broker is not null or p.report is not null
),

limited as (                -- the limit of each resource: what a user declared, else what the source reports
    select /*+ broadcast(c) */ b.*, c.at,
           case when c.percent then 100D else coalesce(cpu_declared, cpu_limit) end as limit_cpu,
           case when c.percent then 100D else coalesce(memory_declared, memory_limit) end as limit_memory,
           case when c.percent then 100D else direct_memory_declared end as limit_direct_memory,
           case when c.percent then 100D else coalesce(network_in_declared, network_limit, c.nic_speed) end
               as limit_network_in,
           case when c.percent then 100D else coalesce(network_out_declared, network_limit, c.nic_speed) end
               as limit_network_out,
           coalesce(cpu, memory, direct_memory, network_in, network_out) is not null as measured,
           collect_set(case when get_json_object(report, '$.ok') = 'false' then shard end) over (partition by b.policy)
               as failed_shards
    from brokers b
    left join cycles c on b.policy = c.policy and b.broker is not null
),

aged as (                   -- the oldest of a broker's newest samples counts; without a time of both kinds there is no age
    select *,
           case when resource_time is not null and traffic_time is not null then
               greatest(at - least(resource_time, traffic_time, cpu_time, memory_time, direct_memory_time, network_in_time, network_out_time), 0D)
           end as age,
           case when broker is not null then shard is null or not array_contains(failed_shards, shard) end as answered
    from limited
)

select policy, shard, broker, pod,
       cpu, cpu_limit, memory, memory_limit, direct_memory, network_in, network_out, network_limit, throttled,
       rate_in, rate_out, throughput_in, throughput_out, resource_time, traffic_time, samples, resets, copies, ahead,
       cpu_time, memory_time, direct_memory_time, network_in_time, network_out_time, cpu_interval, memory_interval,
       direct_memory_interval, network_in_interval, network_out_interval, cpu_cover, memory_cover,
       direct_memory_cover, network_in_cover, network_out_cover,
       limit_cpu, limit_memory, limit_direct_memory, limit_network_in, limit_network_out,
       age, answered, case when broker is not null then answered and measured end as present, string(null) as doubt, report
from aged
