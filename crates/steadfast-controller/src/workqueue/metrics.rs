//! The figures of queues as a scrape of Prometheus reads them, under the names that client-go has made known.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram};
use prometheus_client::registry::Unit;

use super::figures::{Durations, WorkqueueStats};

/// Reads the figures of a queue, if there still is one.
type Reader = Box<dyn Fn() -> Option<WorkqueueStats> + Send + Sync>;

/// The queues that are told of, each by a name.
#[derive(Default)]
pub(super) struct Queues {
    queues: Vec<(String, Reader)>,
}

/// All queues, as they are at one scrape.
type Readings<'a> = [(&'a str, WorkqueueStats)];

impl Queues {
    pub(super) fn add(&mut self, name: String, reader: Reader) {
        self.queues.push((name, reader));
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Writes one sample of each queue for each family.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.queues.iter().filter_map(|(name, read)| Some((name.as_str(), read()?))).collect();
        let mut write = |name, unit: Option<Unit>, help, kind: MetricType, sample: Sample| {
            let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            samples(encoder, &all, sample)
        };
        let seconds = || Some(Unit::Seconds);
        write("workqueue_depth", None, "Keys that are ready", Gauge, |figures| Value::Gauge(figures.depth as f64))?;
        write("workqueue_adds", None, "Additions of keys that were not ready already", Counter, |figures| {
            Value::Counter(figures.adds)
        })?;
        write("workqueue_retries", None, "Additions for later, retries among them", Counter, |figures| {
            Value::Counter(figures.retries)
        })?;
        write(
            "workqueue_queue_duration",
            seconds(),
            "From an addition until the work on the key began",
            Histogram,
            |figures| Value::Durations(&figures.queued),
        )?;
        write("workqueue_work_duration", seconds(), "How long the work on a key took", Histogram, |figures| {
            Value::Durations(&figures.worked)
        })?;
        write(
            "workqueue_unfinished_work",
            seconds(),
            "How long all the work together that has not ended has taken so far",
            Gauge,
            |figures| Value::Gauge(figures.unfinished.as_secs_f64()),
        )?;
        write(
            "workqueue_longest_running_processor",
            seconds(),
            "How long the longest work that has not ended has taken so far",
            Gauge,
            |figures| Value::Gauge(figures.longest_running.as_secs_f64()),
        )
    }
}

type Sample = fn(&WorkqueueStats) -> Value<'_>;

enum Value<'a> {
    Gauge(f64),
    Counter(u64),
    Durations(&'a Durations),
}

/// One sample of each queue.
fn samples(mut encoder: MetricEncoder<'_>, all: &Readings<'_>, sample: Sample) -> fmt::Result {
    for (name, figures) in all {
        let labels = [("name", *name)];
        let mut encoder = encoder.encode_family(&labels)?;
        match sample(figures) {
            Value::Gauge(value) => encoder.encode_gauge(&value)?,
            Value::Counter(value) => encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&value, None)?,
            Value::Durations(Durations { count, sum, classes }) => {
                let bounds = Durations::BOUNDS.into_iter().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(*classes).collect();
                encoder.encode_histogram::<[(&str, &str); 1]>(sum.as_secs_f64(), *count, &buckets, None)?;
            }
        }
    }
    Ok(())
}
