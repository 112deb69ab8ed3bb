//! Prometheus metrics of controllers. Metrics that controller-runtime also has use its names.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::running::RunningController;
use super::stats::ControllerStats;
use crate::workqueue::Durations;

/// Prometheus collector for controllers. Register one collector for all controllers of a program.
///
/// ```
/// # use steadfast_controller::{ControllerMetrics, RunningController, WorkqueueMetrics};
/// # fn example(shop: &RunningController) {
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(ControllerMetrics::default().with("shop", shop)));
/// registry.register_collector(Box::new(WorkqueueMetrics::default().with("shop", shop.queue())));
/// # }
/// ```
///
/// The collector does not keep a controller alive. The next scrape omits a dropped controller.
#[derive(Default)]
pub struct ControllerMetrics {
    controllers: Vec<(String, ControllerReader)>,
}

/// Reads the values of a controller. Returns none after its end.
type ControllerReader = Box<dyn Fn() -> Option<Reading> + Send + Sync>;

/// Values of a controller at one scrape.
struct Reading {
    stats: ControllerStats,
    /// Maximum number of concurrent reconciles.
    max_concurrency: usize,
    durations: Durations,
}

impl ControllerMetrics {
    /// Adds `controller` with the label `name`.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, controller: &RunningController) -> Self {
        let pool = controller.weak();
        let read = move || {
            let pool = pool.upgrade()?;
            Some(Reading {
                stats: pool.stats(),
                max_concurrency: pool.concurrency,
                durations: pool.counters.durations(),
            })
        };
        self.controllers.push((name.into(), Box::new(read)));
        self
    }
}

/// Values of all controllers at one scrape.
type ControllerReadings<'a> = [(&'a str, ControllerStats, usize)];

impl Collector for ControllerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read: Vec<_> = self.controllers.iter().filter_map(|(name, read)| Some((name.as_str(), read()?))).collect();
        let all: Vec<_> = read.iter().map(|(name, reading)| (*name, reading.stats, reading.max_concurrency)).collect();
        durations(&mut encoder, &read)?;
        results(&mut encoder, &all)?;
        let mut counter = |name, unit: Option<Unit>, help, read: fn(&ControllerStats) -> f64| {
            family(&mut encoder, (name, unit, help), &all, |stats, _| ConstCounter::new(read(stats)))
        };
        counter(
            "controller_runtime_reconcile_errors",
            None,
            "Reconciles that returned an error, panicked or timed \
         out",
            |stats| (stats.failed + stats.panicked + stats.timed_out) as f64,
        )?;
        counter(
            "controller_runtime_reconcile_panics",
            None,
            "Reconciles that \
         panicked",
            |stats| stats.panicked as f64,
        )?;
        counter("controller_runtime_reconcile_timeouts", None, "Reconciles that exceeded their timeout", |stats| {
            stats.timed_out as f64
        })?;
        counter(
            "steadfast_controller_waits_for_writes",
            None,
            "Waits of keys for caches that lacked a write of the last reconcile or the triggering change",
            |stats| stats.write_waits as f64,
        )?;
        counter("steadfast_controller_waited_for_writes", Some(Unit::Seconds), "Total time of these waits", |stats| {
            stats.write_wait_duration.as_secs_f64()
        })?;
        counter(
            "steadfast_controller_catch_ups",
            None,
            "Waits of keys for caches that lacked writes of another process",
            |stats| stats.catch_ups as f64,
        )?;
        counter("steadfast_controller_caught_up", Some(Unit::Seconds), "Total time of these waits", |stats| {
            stats.catch_up_duration.as_secs_f64()
        })?;
        counter(
            "steadfast_controller_keys_outside_scope",
            None,
            "Keys that sources mapped to and that no object of the controller can have",
            |stats| stats.outside_scope as f64,
        )?;
        counter("steadfast_controller_pauses", None, "Pauses because a cache was in doubt for too long", |stats| {
            stats.pauses as f64
        })?;
        let mut gauge = |name, help, read: fn(&ControllerStats, usize) -> usize| {
            family(&mut encoder, (name, None, help), &all, |stats, max_concurrency| {
                ConstGauge::new(read(stats, max_concurrency) as f64)
            })
        };
        gauge("controller_runtime_active_workers", "Reconciles in progress", |stats, _| stats.running)?;
        gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles",
            |_, max_concurrency| max_concurrency,
        )?;
        gauge("steadfast_controller_blocked", "Reconciles that block their threads", |stats, _| stats.blocked)?;
        gauge("steadfast_controller_slowed", "Keys delayed after repeated immediate requeues", |stats, _| {
            stats.slowed
        })?;
        gauge(
            "steadfast_controller_waiting_for_writes",
            "Keys that wait for caches that lack a write of the last reconcile or the triggering change",
            |stats, _| stats.waiting_for_writes,
        )?;
        gauge(
            "steadfast_controller_catching_up",
            "1 while keys wait for caches that lack writes of another process, otherwise 0",
            |stats, _| usize::from(stats.catching_up),
        )?;
        gauge(
            "steadfast_controller_paused",
            "1 while reconciles are paused because a cache has been in doubt for too long, otherwise 0",
            |stats, _| usize::from(stats.paused),
        )
    }
}

/// Encodes the durations of reconciles.
fn durations(encoder: &mut DescriptorEncoder<'_>, all: &[(&str, Reading)]) -> fmt::Result {
    let (name, help) = ("controller_runtime_reconcile_time", "Durations of reconciles, whatever their outcome");
    let mut encoder = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (name, Reading { durations: Durations { count, sum, buckets: counts }, .. }) in all {
        let bounds = Durations::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(*counts).collect();
        let labels = [("controller", *name)];
        let mut encoder = encoder.encode_family(&labels)?;
        encoder.encode_histogram::<[(&str, &str); 1]>(sum.as_secs_f64(), *count, &buckets, None)?;
    }
    Ok(())
}

/// Encodes the reconciles by outcome.
fn results(encoder: &mut DescriptorEncoder<'_>, all: &ControllerReadings<'_>) -> fmt::Result {
    let counters = ConstCounter::new(0.0);
    let help = "Reconciles by outcome";
    let mut encoder = encoder.encode_descriptor("controller_runtime_reconcile", help, None, counters.metric_type())?;
    for (name, stats, _) in all {
        let errors = stats.failed + stats.panicked + stats.timed_out;
        for (result, count) in [("success", stats.succeeded), ("requeue", stats.requeued), ("error", errors)] {
            let labels = [("controller", *name), ("result", result)];
            ConstCounter::new(count as f64).encode(encoder.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Encodes one sample per controller.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, unit, help): (&str, Option<Unit>, &str),
    all: &ControllerReadings<'_>,
    sample: impl Fn(&ControllerStats, usize) -> M,
) -> fmt::Result {
    let Some((_, first, max_concurrency)) = all.first() else { return Ok(()) };
    let kind = sample(first, *max_concurrency).metric_type();
    let mut encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (controller, stats, max_concurrency) in all {
        let labels = [("controller", *controller)];
        sample(stats, *max_concurrency).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerMetrics").field("controllers", &self.controllers.len()).finish()
    }
}
