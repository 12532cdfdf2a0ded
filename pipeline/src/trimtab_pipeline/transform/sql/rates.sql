-- Raw samples of brokers -> the value of each signal, and how well its samples cover the window.
--
-- reads  samples (columns.BROKER_SAMPLES), cycles (relations.CYCLES)
-- gives  relations.SIGNALS: a row per policy, pod and signal; the reports of the shards pass through
--
-- rate() of PromQL divides by the whole window, even if only part of it has samples. A broker whose samples stop or
-- restart then looks idle. Here an increase is divided by the time that the samples cover, and that time is a column.
-- The window of a rate ends at the newest sample of its series.

from {samples} as s
|> join {cycles} as c on s.policy = c.policy
|> select /*+ repartition(policy, pod) */
       s.policy, pod, signal, kind, coalesce(part, report) as part, series, time, at, window,
       case when not isnan(value) and abs(value) < double('infinity') then value end as value

-- Each sample with the one before it in its series.
|> select *,
       time - lag(time) over in_time as step,
       value - lag(value) over in_time as gained
   window in_time as (partition by policy, pod, signal, kind, part, series order by time)

-- A pair further apart than the window tells too little of the time between its samples.
|> select *,
       max(time) over this_series as newest,
       max(case when step <= window then try_divide(gained, step) end) over this_series as fastest,
       count_if(step <= window) over this_series as pairs
   window this_series as (partition by policy, pod, signal, kind, part, series)

-- A value this small may be that of a new process, which began to count in this pair. Only another pair tells.
|> extend time > newest - window as inside
|> extend inside and step <= window and pairs > 1
              and (gained is null or gained >= 0 and value >= 1.2D * greatest(fastest, 0D) * step) as covers

-- A row per series.
|> aggregate
       max(time) as time,
       min(time) as begin,
       least(max(step), 2 * median(step)) as interval,
       coalesce(sum(case when covers then step end), 0D) as covered,
       sum(case when covers then gained end) as gained,
       coalesce(bool_or(covers and gained is null), false) as spoiled,
       double(count_if(inside)) as samples,
       double(count_if(inside and gained < 0)) as resets,
       coalesce(max_by(value, time), case when kind = 'value' then max(value) end) as last,
       first(at) - first(window) as start,
       first(at) as at,
       min(case when time > at - window then time end) as recent_begin,
       count_if(time > at - window) as recent
   group by policy, pod, signal, kind, part, series

-- rate() of a user's query ends at the evaluation time. It extends an increase to the ends of its window, or by half an
-- interval where an end is further away than 1.1 intervals.
|> extend try_divide(time - recent_begin, recent - 1) as usual
|> select policy, pod, signal, kind, part, series, time, begin, interval, samples, resets,
       case
           when last < 0 then null
           when kind = 'counter' then case when last is not null and not spoiled then try_divide(gained, covered) end
           when kind <> 'rated' then last
       end as value,
       case
           when kind = 'counter' then covered
           when kind = 'rated' and recent < 2 then 0D
           when kind = 'rated' then time - recent_begin
               + case when recent_begin - start < 1.1D * usual then recent_begin - start else usual / 2 end
               + case when at - time < 1.1D * usual then at - time else usual / 2 end
       end as cover

-- Of each part the series with the newest sample counts, the highest value on a tie.
|> aggregate
       max(struct(time, coalesce(value, -1D) as rank, series, begin, value, interval, cover, samples, resets)) as one,
       collect_list(time) as times
   group by policy, pod, signal, kind, part

-- A server shows the series of a pod that is gone as long as their samples are readable.
|> extend max(one.time) over (partition by policy, pod, signal, kind) as newest
|> where one.time is null or one.time = newest

|> aggregate
       case when count_if(kind not in ('rated', 'expected') and one.value is null) = 0 then sum(one.value) end as value,
       max(one.time) as time,
       max(one.interval) as interval,
       min(one.cover) as cover,
       min(case when kind in ('counter', 'gauge') then one.samples end) as samples,
       sum(case when kind = 'counter' then one.resets end) as resets,
       max(case when kind in ('counter', 'gauge')
           then double(greatest(size(filter(times, other -> other > one.begin)), 1)) end) as copies
   group by policy, pod, signal, case when signal is null then part end as report
|> select policy, pod, signal, value, time, interval, cover, samples, resets, copies, report
