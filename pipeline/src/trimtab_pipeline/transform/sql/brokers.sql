-- The signals of pods -> the same with their limits, and whether and when each pod was measured.
--
-- reads  signals (relations.SIGNALS), cycles (relations.CYCLES)
-- gives  relations.SIGNAL_LOADS: the signals of the pods of a topology; the reports of the shards pass through

from {signals}
|> select *,
       map_from_entries(collect_list(case when signal is not null then struct(signal, value) end) over this_pod) as known
   window this_pod as (partition by policy, pod)
|> where known['brokers'] > 0 or report is not null

-- For minutes, a server shows the raw samples of a pod that is gone. The times of its newest samples are missing then.
|> set value = case
       when samples is null then value
       when signal in ('rate_in', 'rate_out', 'throughput_in', 'throughput_out')
           then case when known['traffic_time'] is not null then value end
       when known['resource_time'] is not null then value
   end

|> extend signal in ('cpu', 'memory', 'direct_memory', 'network_in', 'network_out') as is_usage
|> select *,
       coalesce(known['resource_time'], known['last_resource_time']) as resource_time,
       coalesce(known['traffic_time'], known['last_traffic_time']) as traffic_time,
       min(case when is_usage then time end) over this_pod as oldest,
       max(case when signal in ('cpu', 'network_in', 'network_out') then resets end) over this_pod as all_resets,
       count_if(is_usage and value is not null) over this_pod > 0 as measured
   window this_pod as (partition by policy, pod)

|> join {cycles} as c using (policy)
|> select policy, pod, signal, value, time, interval, cover, samples, resets, copies, known, is_usage, all_resets,
       -- the limit that a user declared, else the one that the source reports. The age needs times of both kinds
       case
           when is_usage and percent then 100D
           when is_usage then coalesce(
               known[concat(signal, '_declared')],
               known[concat(regexp_replace(signal, '_(in|out)$', ''), '_limit')],
               case when signal in ('network_in', 'network_out') then nic_speed end
           )
       end as limit,
       case when resource_time is not null and traffic_time is not null
           then greatest(at - least(resource_time, traffic_time, oldest), 0D)
       end as age,
       not array_contains(
           collect_set(case when get_json_object(report, '$.ok') = 'false'
               then double(get_json_object(report, '$.shard')) end) over (partition by policy),
           coalesce(known['shard'], -1D)
       ) as answered,
       measured, report
|> extend answered and measured as present
|> drop measured
