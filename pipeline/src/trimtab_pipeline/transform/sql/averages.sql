-- New samples of bundles and the state after the last cycle -> the state after this cycle.
--
-- reads  bundles (columns.BUNDLE_SAMPLES without topics), times (relations.POD_TIMES), state (relations.STATE),
--        cycles (relations.CYCLES)
-- gives  relations.BUNDLE_LOAD: also bundles that were not measured now, with their averages, until the horizon
--
-- Averages are exponential in time: a sample that is `passed` seconds newer than the last one has the weight
-- 1 - exp(-passed / tau), and the nth sample at least 1 / n. Pulsar's averages count samples instead (10 and 1000), and
-- begin with its default statistics as the first sample.

with measured as (          -- bundles have the times of their pod's own traffic, which comes from the same scrape
    select /*+ broadcast(t) */ b.*, b.producers + b.consumers as sessions, t.traffic_time
    from bundles b
    left join times t on b.policy = t.policy and b.pod = t.pod
),

joined as (                 -- each new sample beside the last state of its bundle
    select /*+ broadcast(c), shuffle_hash(s) */
           c.policy, c.at, c.by_samples, c.short_tau, c.long_tau, m.bundle is not null as is_new, m.report,
           coalesce(m.bundle, s.bundle) as bundle, coalesce(m.pod, s.pod) as pod,
           m.rate_in, m.rate_out, m.throughput_in, m.throughput_out,
           coalesce(m.topics, s.topics) as topics, coalesce(m.sessions, s.sessions) as sessions,
           s.short_rate_in, s.short_rate_out, s.short_throughput_in, s.short_throughput_out,
           s.long_rate_in, s.long_rate_out, s.long_throughput_in, s.long_throughput_out,
           s.seen, s.time, s.count,
           -- a sample of the future counts as one of now
           least(coalesce(m.traffic_time, c.at), c.at) as new_time,
           -- a sample with an unknown signal changes no average, or the others would run ahead of it
           m.bundle is not null
               and coalesce(m.rate_in + m.rate_out + m.throughput_in + m.throughput_out < double('infinity'), false)
               as good
    from measured m
    full outer join state s on m.policy = s.policy and m.bundle = s.bundle
    join cycles c on coalesce(m.policy, s.policy) = c.policy
    where m.policy is not null or s.seen >= c.at - c.horizon
),

counted as (                -- the default statistics are the first sample
    select *,
           greatest(coalesce(new_time - time, 0D), 0D) as passed,
           least(coalesce(count, 1D) + 1, 10D) as short_count,
           least(coalesce(count, 1D) + 1, 1000D) as long_count
    from joined
),

weighted as (
    select *,
           greatest(-expm1(-passed / short_tau), least_weight) as short_weight,
           greatest(-expm1(-passed / long_tau), least_weight) as long_weight
    from (
        select *, case when passed > 0 and long_count < 1000 then 1 / (long_count - 1) else 0D end as least_weight
        from counted
    )
)

select policy, bundle, pod, rate_in, rate_out, throughput_in, throughput_out, topics, sessions,
       case
           when not good then short_rate_in
           when by_samples then (coalesce(short_rate_in, 50D) * (short_count - 1) + rate_in) / short_count
           else coalesce(short_rate_in + short_weight * (rate_in - short_rate_in), rate_in)
       end as short_rate_in,
       case
           when not good then short_rate_out
           when by_samples then (coalesce(short_rate_out, 50D) * (short_count - 1) + rate_out) / short_count
           else coalesce(short_rate_out + short_weight * (rate_out - short_rate_out), rate_out)
       end as short_rate_out,
       case
           when not good then short_throughput_in
           when by_samples then (coalesce(short_throughput_in, 50000D) * (short_count - 1) + throughput_in) / short_count
           else coalesce(short_throughput_in + short_weight * (throughput_in - short_throughput_in), throughput_in)
       end as short_throughput_in,
       case
           when not good then short_throughput_out
           when by_samples then (coalesce(short_throughput_out, 50000D) * (short_count - 1) + throughput_out) / short_count
           else coalesce(short_throughput_out + short_weight * (throughput_out - short_throughput_out), throughput_out)
       end as short_throughput_out,
       case
           when not good then long_rate_in
           when by_samples then (coalesce(long_rate_in, 50D) * (long_count - 1) + rate_in) / long_count
           else coalesce(long_rate_in + long_weight * (rate_in - long_rate_in), rate_in)
       end as long_rate_in,
       case
           when not good then long_rate_out
           when by_samples then (coalesce(long_rate_out, 50D) * (long_count - 1) + rate_out) / long_count
           else coalesce(long_rate_out + long_weight * (rate_out - long_rate_out), rate_out)
       end as long_rate_out,
       case
           when not good then long_throughput_in
           when by_samples then (coalesce(long_throughput_in, 50000D) * (long_count - 1) + throughput_in) / long_count
           else coalesce(long_throughput_in + long_weight * (throughput_in - long_throughput_in), throughput_in)
       end as long_throughput_in,
       case
           when not good then long_throughput_out
           when by_samples then (coalesce(long_throughput_out, 50000D) * (long_count - 1) + throughput_out) / long_count
           else coalesce(long_throughput_out + long_weight * (throughput_out - long_throughput_out), throughput_out)
       end as long_throughput_out,
       case when is_new then at else seen end as seen,
       case when good then greatest(new_time, time) else time end as time,
       case when good then long_count else count end as count,
       report
from weighted
