-- Raw samples of brokers -> the value of each signal, and how well its samples cover the window.
--
-- reads  samples (columns.BROKER_SAMPLES), cycles (relations.CYCLES)
-- gives  relations.SIGNALS: a row per policy, pod and signal; the reports of the shards pass through
--
-- rate() of PromQL divides by the whole window, even if only part of it has samples. A broker whose samples stop or
-- restart then looks idle. Here an increase is divided by the time that the samples cover, and that time is a column.
-- The window of a rate ends at the newest sample of its series.

with points as (            -- a row per sample; what is not a finite number is unknown
    select /*+ broadcast(c), repartition(policy, pod) */
           s.policy, s.pod, s.signal, s.kind, s.part, s.series, s.report, s.time, c.at, c.window,
           case when not isnan(s.value) and abs(s.value) < double('infinity') then s.value end as value
    from samples s
    join cycles c on s.policy = c.policy
),

pairs as (                  -- each sample with the one before it in its series
    select *,
           time - lag(time) over in_time as step,
           value - lag(value) over in_time as gained,
           max(time) over series as newest
    from points
    window series as (partition by policy, pod, signal, kind, part, series, report),
           in_time as (partition by policy, pod, signal, kind, part, series, report order by time)
),

rated_pairs as (            -- a pair further apart than the window tells too little of the time between its samples
    select *,
           time > newest - window as inside,
           time > newest - window and step <= window as counts,
           max(case when step <= window then try_divide(gained, step) end) over (
               partition by policy, pod, signal, kind, part, series, report
           ) as fastest
    from pairs
),

covered_pairs as (          -- a value this small may be that of a new process, which began to count in this pair
    select *,
           counts and (gained is null or gained >= 0 and value >= 1.2D * greatest(fastest, 0D) * step) as covers
    from rated_pairs
),

all_series as (             -- a row per series
    select policy, pod, signal, kind, part, series, report,
           max(time) as time,
           min(time) as begin,
           least(max(step), 2 * median(step)) as interval,
           coalesce(sum(case when covers then step end), 0D) as cover,
           sum(case when covers then gained end) as gained,
           coalesce(bool_or(counts and gained is null), false) as spoiled,
           double(count_if(inside)) as samples,
           double(count_if(inside and gained < 0)) as resets,
           coalesce(max_by(value, time), case when kind = 'value' then max(value) end) as value,
           first(at) as at,
           first(window) as window,
           min(case when time > at - window then time end) as recent_begin,
           count_if(time > at - window) as recent
    from covered_pairs
    group by policy, pod, signal, kind, part, series, report
),

measured_series as (        -- the same with its value and its coverage
    select policy, pod, signal, kind, part, series, report, time, begin, interval, samples, resets,
           case
               when value < 0 then null
               when kind = 'counter' then case when value is not null and not spoiled then try_divide(gained, cover) end
               when kind in ('gauge', 'value') then value
           end as value,
           case
               when kind = 'counter' then cover
               when kind = 'rated' and recent < 2 then 0D
               -- rate() ends at the evaluation time, and extends an increase to the ends of its window, or by half an
               -- interval where an end is further away than 1.1 intervals
               when kind = 'rated' then time - recent_begin
                   + case when head < 1.1D * usual then head else usual / 2 end
                   + case when tail < 1.1D * usual then tail else usual / 2 end
           end as cover
    from (
        select *,
               try_divide(time - recent_begin, recent - 1) as usual,
               recent_begin - (at - window) as head,
               at - time as tail
        from all_series
    )
),

parts as (                  -- of each part the series with the newest sample counts, the highest value on a tie
    select policy, pod, signal, kind, part, report,
           max(struct(time, coalesce(value, -1D) as rank, series, begin, value, interval, cover, samples, resets)) as one,
           collect_list(time) as times
    from measured_series
    group by policy, pod, signal, kind, part, report
),

current_parts as (          -- a server shows the series of a pod that is gone as long as their samples are readable
    select policy, pod, signal, kind, report, one, times,
           max(one.time) over (partition by policy, pod, signal, kind) as newest,
           max(case when signal = 'resource_time' then one.value end) over (partition by policy, pod) as resource_time,
           max(case when signal = 'traffic_time' then one.value end) over (partition by policy, pod) as traffic_time
    from parts
),

shown_parts as (
    select policy, pod, signal, kind, report, one,
           greatest(size(filter(times, other -> other > one.begin)), 1) as copies,
           case
               when kind = 'value' then one.value
               when signal in ('rate_in', 'rate_out', 'throughput_in', 'throughput_out')
                   then case when traffic_time is not null then one.value end
               when resource_time is not null then one.value
           end as value
    from current_parts
    where one.time is null or one.time = newest
)

select policy, pod, signal,
       case when count_if(kind <> 'rated' and value is null) = 0 then sum(value) end as value,
       max(one.time) as time,
       max(one.interval) as interval,
       min(one.cover) as cover,
       min(case when kind in ('counter', 'gauge') then one.samples end) as samples,
       sum(case when kind = 'counter' then one.resets end) as resets,
       max(case when kind in ('counter', 'gauge') then double(copies) end) as copies,
       report
from shown_parts
group by policy, pod, signal, report
