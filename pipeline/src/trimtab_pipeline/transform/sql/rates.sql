-- Raw samples of brokers -> the value of each signal, and how well its samples cover the window.
--
-- reads  samples (columns.BROKER_SAMPLES), cycles (relations.CYCLES)
-- gives  relations.SIGNALS: a row per policy, pod and signal; the reports of the shards pass through
--
-- rate() of PromQL divides by the whole window, even if only part of it has samples. A broker whose samples stop or
-- restart then looks idle. Here an increase is divided by the time that the samples cover, and that time is a column.
-- The window of a rate ends at the newest sample of its series.

-- A row per series: its samples, oldest first.
from {samples}
|> select /*+ repartition(policy, pod) */ *
|> aggregate
       sort_array(collect_list(struct(
           time, case when not isnan(value) and abs(value) < double('infinity') then value end as value
       ))) as samples
   group by policy, pod, signal, kind, coalesce(part, report) as part, series
|> as s
|> join {cycles} as c on s.policy = c.policy
|> select s.policy, pod, signal, kind, part, series, samples, element_at(samples, -1) as newest, at, window

-- Each sample with the one before it. If they are further apart than the window, too little is known of the time
-- between them.
|> extend zip_with(slice(samples, 1, size(samples) - 1), slice(samples, 2, size(samples) - 1), (before, one) -> struct(
       one.time, one.value, one.time - before.time as step, one.value - before.value as gained,
       one.time > newest.time - window as inside
   )) as all_pairs
|> extend filter(all_pairs, pair -> pair.step <= window) as pairs,
       sort_array(transform(all_pairs, pair -> pair.step)) as steps
|> extend array_max(transform(pairs, pair -> try_divide(pair.gained, pair.step))) as fastest

-- A small value may come from a new process that began to count within this pair. Only another pair can show that it
-- does not.
|> extend filter(pairs, pair -> pair.inside and size(pairs) > 1 and (
       pair.gained is null or pair.gained >= 0 and pair.value >= 1.2D * greatest(fastest, 0D) * pair.step
   )) as covering

-- rate() of a user's query ends at the evaluation time. It extends an increase to the ends of its window, or by half an
-- interval where an end is further away than 1.1 intervals.
|> extend filter(samples, one -> one.time > at - window).time as recent_times
|> extend array_min(recent_times) as recent_begin, size(recent_times) as recent
|> extend try_divide(newest.time - recent_begin, recent - 1) as usual
|> extend aggregate(covering, 0D, (sum, pair) -> sum + pair.step) as covered
|> select policy, pod, signal, kind, part, series,
       newest.time as time,
       samples[0].time as begin,
       least(array_max(steps), get(steps, (size(steps) - 1) div 2) + get(steps, size(steps) div 2)) as interval,
       double(size(filter(samples, one -> one.time > newest.time - window))) as samples,
       double(size(filter(all_pairs, pair -> pair.inside and pair.gained < 0))) as resets,
       case
           when newest.value < 0 then null
           when kind = 'counter' and newest.value is not null
               then try_divide(aggregate(covering, 0D, (sum, pair) -> sum + pair.gained), covered)
           when kind in ('gauge', 'value') then newest.value
       end as value,
       case
           when kind = 'counter' then covered
           when kind = 'rated' and recent < 2 then 0D
           when kind = 'rated' then newest.time - recent_begin
               + case when recent_begin - (at - window) < 1.1D * usual then recent_begin - (at - window) else usual / 2 end
               + case when at - newest.time < 1.1D * usual then at - newest.time else usual / 2 end
       end as cover

-- For each part, only the series with the newest sample counts; on a tie, the highest value.
|> aggregate
       max(struct(time, coalesce(value, -1D) as rank, series, begin, value, interval, cover, samples, resets)) as one,
       collect_list(time) as times
   group by policy, pod, signal, kind, part

-- Only the parts with the newest samples count, because Prometheus also returns samples of parts that are gone.
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
