-- The first doubt about each broker, in the order of the table in docs/concepts.md ("No data, no move").
--
-- reads  loads (relations.SIGNAL_LOADS), cycles (relations.CYCLES)
-- gives  the same with `doubt`, a code that is the same for all signals of a pod; `trust.py` has the text of each code

from {loads}
|> join {cycles} using (policy)
|> select *,
       count_if(present and value is not null) over (partition by policy, signal) > 0 as somewhere,
       max(case when signal = 'cpu' and resets is not null then samples end) over (partition by policy, pod) as cpu_samples,
       max(case when signal = 'cpu' and resets is not null then samples end) over (partition by policy) is not null
           as samples_known

-- A resource that is measured nowhere does not count. CPU and memory always count, because without them a full broker
-- would look empty.
|> extend is_usage and (somewhere or signal in ('cpu', 'memory')) as counts,
       array_position(array('cpu', 'memory', 'direct_memory', 'network_in', 'network_out'), signal) as place
|> extend
       -- is it measured at all, and are its samples odd?
       case
           when not answered then 'partial'
           when known['brokers'] > 1 and pod <> '' then 'shared_pod'
           when not present and age is null then 'never'
           when not present then 'gone'
           when age is null then 'time_unknown'
           when age > max_age then 'old'
           when known['ahead'] > 0 then 'ahead'
           when not percent and abs(at - known['started']) < window then 'restarted'
           when all_resets > max_resets then 'resets'
           when samples_known and coalesce(cpu_samples, 0D) < min_samples then 'few_samples'
       end as of_broker,
       -- did the samples of a resource stop, or do they cover too little of the window? However short the interval is,
       -- samples may be late by a third of the window, or by 5 s
       case
           when counts and at - time > greatest(1.5D * coalesce(interval, window / 2), window / 3, 5D) then 'stopped_'
           when counts and cover < 0.75D * window then 'cover_'
       end as of_samples,
       -- is its usage unknown, without a limit, or impossible?
       case
           when counts and value is not null and not coalesce(limit > 0, false) then 'no_limit_'
           when counts and value is null then 'unknown_'
           when counts and value > above_limit * limit then 'above_'
       end as of_usage
|> select policy, pod, signal, value, time, interval, cover, samples, resets, copies, limit, age, answered, present,
       case when report is null then coalesce(
           of_broker,
           min(case when of_samples is not null then struct(place, concat(of_samples, signal) as code) end) over this_pod.code,
           min(case when of_usage is not null then struct(place, concat(of_usage, signal) as code) end) over this_pod.code
       ) end as doubt,
       report
   window this_pod as (partition by policy, pod)
