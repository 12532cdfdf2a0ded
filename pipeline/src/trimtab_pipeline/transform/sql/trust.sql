-- The first doubt about each broker, in the order of the table in docs/concepts.md ("No data, no move").
--
-- reads  loads (relations.BROKER_LOAD), cycles (relations.CYCLES)
-- gives  relations.BROKER_LOAD; trust.py has the text of each code

with policies as (          -- each broker beside what is known of all brokers of its policy
    select /*+ broadcast(c) */ l.*, c.at, c.window, c.max_age, c.above_limit, c.max_resets, c.min_samples,
           greatest(c.window / 3, 5D) as late,             -- a resource may always be this late, however short its interval
           count(l.broker) over (partition by l.policy, l.pod) as sharing,
           coalesce(max(l.samples) over policy, -1D) >= 0 as samples_known,
           -- a resource that is measured nowhere does not count; without CPU and memory a full broker would look empty
           true as measures_cpu,
           true as measures_memory,
           coalesce(bool_or(l.present and l.direct_memory is not null) over policy, false) as measures_direct_memory,
           coalesce(bool_or(l.present and l.network_in is not null) over policy, false) as measures_network_in,
           coalesce(bool_or(l.present and l.network_out is not null) over policy, false) as measures_network_out
    from loads l
    join cycles c on l.policy = c.policy
    window policy as (partition by l.policy)
),

ages as (                   -- seconds since the newest sample of each resource
    select *,
           greatest(at - cpu_time, 0D) as cpu_age,
           greatest(at - memory_time, 0D) as memory_age,
           greatest(at - direct_memory_time, 0D) as direct_memory_age,
           greatest(at - network_in_time, 0D) as network_in_age,
           greatest(at - network_out_time, 0D) as network_out_age
    from policies
)

select policy, shard, broker, pod,
       cpu, cpu_limit, memory, memory_limit, direct_memory, network_in, network_out, network_limit, throttled,
       rate_in, rate_out, throughput_in, throughput_out, resource_time, traffic_time, samples, resets, copies, ahead,
       cpu_time, memory_time, direct_memory_time, network_in_time, network_out_time, cpu_interval, memory_interval,
       direct_memory_interval, network_in_interval, network_out_interval, cpu_cover, memory_cover,
       direct_memory_cover, network_in_cover, network_out_cover,
       limit_cpu, limit_memory, limit_direct_memory, limit_network_in, limit_network_out,
       age, answered, present,
       case
           when broker is null then null
           -- is it measured at all?
           when not answered then 'partial'
           when sharing > 1 and pod <> '' then 'shared_pod'
           when not present and age is null then 'never'
           when not present then 'gone'
           when age is null then 'time_unknown'
           when age > max_age then 'old'
           -- are its samples odd?
           when ahead > 0 then 'ahead'
           when resets > max_resets then 'resets'
           when samples_known and coalesce(samples, 0D) < min_samples then 'few_samples'
           -- did the samples of a resource stop, or do they cover too little of the window?
           when measures_cpu and cpu_age > greatest(1.5D * coalesce(cpu_interval, window / 2), late) then 'stopped_cpu'
           when measures_cpu and cpu_cover < 0.75D * window then 'cover_cpu'
           when measures_memory and memory_age > greatest(1.5D * coalesce(memory_interval, window / 2), late) then 'stopped_memory'
           when measures_memory and memory_cover < 0.75D * window then 'cover_memory'
           when measures_direct_memory and direct_memory_age > greatest(1.5D * coalesce(direct_memory_interval, window / 2), late) then 'stopped_direct_memory'
           when measures_direct_memory and direct_memory_cover < 0.75D * window then 'cover_direct_memory'
           when measures_network_in and network_in_age > greatest(1.5D * coalesce(network_in_interval, window / 2), late) then 'stopped_network_in'
           when measures_network_in and network_in_cover < 0.75D * window then 'cover_network_in'
           when measures_network_out and network_out_age > greatest(1.5D * coalesce(network_out_interval, window / 2), late) then 'stopped_network_out'
           when measures_network_out and network_out_cover < 0.75D * window then 'cover_network_out'
           -- is its usage unknown, without a limit, or impossible?
           when measures_cpu and cpu is not null and not coalesce(limit_cpu > 0, false) then 'no_limit_cpu'
           when measures_cpu and cpu is null then 'unknown_cpu'
           when measures_cpu and cpu > above_limit * limit_cpu then 'above_cpu'
           when measures_memory and memory is not null and not coalesce(limit_memory > 0, false) then 'no_limit_memory'
           when measures_memory and memory is null then 'unknown_memory'
           when measures_memory and memory > above_limit * limit_memory then 'above_memory'
           when measures_direct_memory and direct_memory is not null and not coalesce(limit_direct_memory > 0, false) then 'no_limit_direct_memory'
           when measures_direct_memory and direct_memory is null then 'unknown_direct_memory'
           when measures_direct_memory and direct_memory > above_limit * limit_direct_memory then 'above_direct_memory'
           when measures_network_in and network_in is not null and not coalesce(limit_network_in > 0, false) then 'no_limit_network_in'
           when measures_network_in and network_in is null then 'unknown_network_in'
           when measures_network_in and network_in > above_limit * limit_network_in then 'above_network_in'
           when measures_network_out and network_out is not null and not coalesce(limit_network_out > 0, false) then 'no_limit_network_out'
           when measures_network_out and network_out is null then 'unknown_network_out'
           when measures_network_out and network_out > above_limit * limit_network_out then 'above_network_out'
       end as doubt,
       report
from ages
