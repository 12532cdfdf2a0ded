-- New samples of bundles and the state after the last cycle -> the state after this cycle.
--
-- reads  bundles (columns.BUNDLE_SAMPLES without topics), times (relations.POD_TIMES), state (relations.STATE),
--        cycles (relations.CYCLES)
-- gives  relations.BUNDLE_LOAD: also bundles that were not measured now, with their averages, until the horizon
--
-- Averages are exponential in time: a sample that is `passed` seconds newer than the last one has the weight
-- 1 - exp(-passed / tau), and the nth sample at least 1 / n. Pulsar's averages count samples instead (10 and 1000), and
-- begin with its default statistics as the first sample.

-- Bundles have the times of their pod's own traffic, which comes from the same scrape.
from {bundles} as b
|> left join {times} as t on b.policy = t.policy and b.pod = t.pod
|> select b.*, traffic_time

-- Each new sample with the last state of its bundle.
|> as m
|> full outer join {state} as s on m.policy = s.policy and m.bundle = s.bundle
|> join {cycles} as c on coalesce(m.policy, s.policy) = c.policy
|> where m.policy is not null or s.seen >= c.at - c.horizon
|> select c.policy, coalesce(m.bundle, s.bundle) as bundle, coalesce(m.pod, s.pod) as pod,
       m.rate_in, m.rate_out, m.throughput_in, m.throughput_out,
       coalesce(m.topics, s.topics) as topics,
       coalesce(m.producers + m.consumers, s.sessions) as sessions,
       s.short_rate_in, s.short_rate_out, s.short_throughput_in, s.short_throughput_out,
       s.long_rate_in, s.long_rate_out, s.long_throughput_in, s.long_throughput_out,
       case when m.bundle is not null then c.at else s.seen end as seen,
       s.time, s.count, c.by_samples, c.short_tau, c.long_tau, m.report,
       -- a sample from the future counts as one of now
       least(coalesce(m.traffic_time, c.at), c.at) as new_time,
       -- if a signal of a sample is unknown, the sample changes no average, so that all are of one age
       m.bundle is not null
           and coalesce(m.rate_in + m.rate_out + m.throughput_in + m.throughput_out < double('infinity'), false) as good

|> extend greatest(coalesce(new_time - time, 0D), 0D) as passed,
       least(coalesce(count, 1D) + 1, 10D) as short_count,
       least(coalesce(count, 1D) + 1, 1000D) as long_count
|> extend case when passed > 0 and long_count < 1000 then 1 / (long_count - 1) else 0D end as least_weight
|> extend case
           when by_samples then 1 / short_count
           else greatest(-expm1(-passed / short_tau), least_weight)
       end as short_weight,
       case
           when by_samples then 1 / long_count
           else greatest(-expm1(-passed / long_tau), least_weight)
       end as long_weight

-- The default statistics, or the sample itself, are the first average.
|> extend case when by_samples then 50D else rate_in end as first_rate_in,
       case when by_samples then 50D else rate_out end as first_rate_out,
       case when by_samples then 50000D else throughput_in end as first_throughput_in,
       case when by_samples then 50000D else throughput_out end as first_throughput_out
|> select policy, bundle, pod, rate_in, rate_out, throughput_in, throughput_out, topics, sessions,
       if(good, coalesce(short_rate_in, first_rate_in), short_rate_in) as short_rate_in,
       if(good, coalesce(short_rate_out, first_rate_out), short_rate_out) as short_rate_out,
       if(good, coalesce(short_throughput_in, first_throughput_in), short_throughput_in) as short_throughput_in,
       if(good, coalesce(short_throughput_out, first_throughput_out), short_throughput_out) as short_throughput_out,
       if(good, coalesce(long_rate_in, first_rate_in), long_rate_in) as long_rate_in,
       if(good, coalesce(long_rate_out, first_rate_out), long_rate_out) as long_rate_out,
       if(good, coalesce(long_throughput_in, first_throughput_in), long_throughput_in) as long_throughput_in,
       if(good, coalesce(long_throughput_out, first_throughput_out), long_throughput_out) as long_throughput_out,
       short_weight, long_weight, seen, time, count, new_time, long_count, good, report
|> select policy, bundle, pod, rate_in, rate_out, throughput_in, throughput_out, topics, sessions,
       if(good, short_rate_in + short_weight * (rate_in - short_rate_in), short_rate_in) as short_rate_in,
       if(good, short_rate_out + short_weight * (rate_out - short_rate_out), short_rate_out) as short_rate_out,
       if(good, short_throughput_in + short_weight * (throughput_in - short_throughput_in), short_throughput_in) as short_throughput_in,
       if(good, short_throughput_out + short_weight * (throughput_out - short_throughput_out), short_throughput_out) as short_throughput_out,
       if(good, long_rate_in + long_weight * (rate_in - long_rate_in), long_rate_in) as long_rate_in,
       if(good, long_rate_out + long_weight * (rate_out - long_rate_out), long_rate_out) as long_rate_out,
       if(good, long_throughput_in + long_weight * (throughput_in - long_throughput_in), long_throughput_in) as long_throughput_in,
       if(good, long_throughput_out + long_weight * (throughput_out - long_throughput_out), long_throughput_out) as long_throughput_out,
       seen, if(good, greatest(new_time, time), time) as time, if(good, long_count, count) as count, report
