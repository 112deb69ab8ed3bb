//! Prometheus metrics of queues, under client-go's names.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram};
use prometheus_client::registry::Unit;

use super::stats::{Durations, WorkqueueStats};

/// Reads the values of a queue. Returns none after its end.
type QueueReader = Box<dyn Fn() -> Option<WorkqueueStats> + Send + Sync>;

/// Registered queues, by name.
#[derive(Default)]
pub(super) struct Queues {
    queues: Vec<(String, QueueReader)>,
}

/// Values of all queues at one scrape.
type QueueReadings<'a> = [(&'a str, WorkqueueStats)];

impl Queues {
    pub(super) fn add(&mut self, name: String, reader: QueueReader) {
        self.queues.push((name, reader));
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Encodes one sample per queue and metric.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.queues.iter().filter_map(|(name, read)| Some((name.as_str(), read()?))).collect();
        let mut write = |name, unit: Option<Unit>, help, kind: MetricType, sample: Sample| {
            let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            samples(encoder, &all, sample)
        };
        let seconds = || Some(Unit::Seconds);
        write("workqueue_depth", None, "Keys that are ready", Gauge, |stats| Value::Gauge(stats.depth as f64))?;
        write("workqueue_adds", None, "Additions of keys that were not already ready", Counter, |stats| {
            Value::Counter(stats.adds)
        })?;
        write("workqueue_retries", None, "Delayed additions, including retries", Counter, |stats| {
            Value::Counter(stats.retries)
        })?;
        write(
            "workqueue_queue_duration",
            seconds(),
            "Time from addition to the start of processing",
            Histogram,
            |stats| Value::Durations(&stats.queue_duration),
        )?;
        write("workqueue_work_duration", seconds(), "Processing time of a key", Histogram, |stats| {
            Value::Durations(&stats.work_duration)
        })?;
        write("workqueue_unfinished_work", seconds(), "Total time of all unfinished runs so far", Gauge, |stats| {
            Value::Gauge(stats.unfinished_work.as_secs_f64())
        })?;
        write(
            "workqueue_longest_running_processor",
            seconds(),
            "Time of the longest unfinished run so far",
            Gauge,
            |stats| Value::Gauge(stats.longest_running.as_secs_f64()),
        )
    }
}

type Sample = fn(&WorkqueueStats) -> Value<'_>;

enum Value<'a> {
    Gauge(f64),
    Counter(u64),
    Durations(&'a Durations),
}

/// Encodes one sample per queue.
fn samples(mut encoder: MetricEncoder<'_>, all: &QueueReadings<'_>, sample: Sample) -> fmt::Result {
    for (name, stats) in all {
        let labels = [("name", *name)];
        let mut encoder = encoder.encode_family(&labels)?;
        match sample(stats) {
            Value::Gauge(value) => encoder.encode_gauge(&value)?,
            Value::Counter(value) => encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&value, None)?,
            Value::Durations(Durations { count, sum, buckets: counts }) => {
                let bounds = Durations::BOUNDS.into_iter().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(*counts).collect();
                encoder.encode_histogram::<[(&str, &str); 1]>(sum.as_secs_f64(), *count, &buckets, None)?;
            }
        }
    }
    Ok(())
}
