-- The signals of pods -> a row per broker of the topology, with the limits that count and the age of its samples.
--
-- reads  signals (relations.SIGNALS), targets (relations.TARGETS), cycles (relations.CYCLES)
-- gives  relations.BROKER_LOAD with an empty doubt; the reports of the shards pass through

with pods as (              -- a row per pod with its signals by name, and one per report
    select policy, pod, report,
           map_from_entries(
               collect_list(struct(signal, struct(value, time, interval, cover, samples, resets))) filter (where signal is not null)
           ) as of,
           max(resets) filter (where signal in ('cpu', 'network_in', 'network_out')) as resets,
           max(copies) as copies
    from signals
    group by policy, pod, report
),

brokers as (                -- a row per broker of the topology, measured or not, and one per report
    select coalesce(t.policy, p.policy) as policy,
           coalesce(t.shard, int(get_json_object(p.report, '$.shard'))) as shard,
           t.broker,
           coalesce(t.pod, p.pod) as pod,
           of['cpu'].value as cpu,
           of['cpu_limit'].value as cpu_limit,
           of['memory'].value as memory,
           of['memory_limit'].value as memory_limit,
           of['direct_memory'].value as direct_memory,
           of['network_in'].value as network_in,
           of['network_out'].value as network_out,
           of['network_limit'].value as network_limit,
           of['throttled'].value as throttled,
           of['rate_in'].value as rate_in,
           of['rate_out'].value as rate_out,
           of['throughput_in'].value as throughput_in,
           of['throughput_out'].value as throughput_out,
           coalesce(of['resource_time'].value, t.last_resource_time) as resource_time,
           coalesce(of['traffic_time'].value, t.last_traffic_time) as traffic_time,
           case when of['cpu'].resets is not null then of['cpu'].samples end as samples,
           resets, copies,
           of['ahead'].value as ahead,
           of['cpu'].time as cpu_time,
           of['memory'].time as memory_time,
           of['direct_memory'].time as direct_memory_time,
           of['network_in'].time as network_in_time,
           of['network_out'].time as network_out_time,
           of['cpu'].interval as cpu_interval,
           of['memory'].interval as memory_interval,
           of['direct_memory'].interval as direct_memory_interval,
           of['network_in'].interval as network_in_interval,
           of['network_out'].interval as network_out_interval,
           of['cpu'].cover as cpu_cover,
           of['memory'].cover as memory_cover,
           of['direct_memory'].cover as direct_memory_cover,
           of['network_in'].cover as network_in_cover,
           of['network_out'].cover as network_out_cover,
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
