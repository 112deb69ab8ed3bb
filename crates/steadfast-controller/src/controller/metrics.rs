//! The figures of controllers as a scrape of Prometheus reads them: under the names of controller-runtime where it has them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::figures::ControllerStats;
use super::running::RunningController;
use crate::workqueue::Durations;

/// The metrics of some controllers; to be registered once for all controllers of a program.
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
/// It keeps no controller alive: one that is gone is gone from the next scrape.
#[derive(Default)]
pub struct ControllerMetrics {
    controllers: Vec<(String, Reader)>,
}

/// Reads the figures of a controller, if it still runs.
type Reader = Box<dyn Fn() -> Option<Reading> + Send + Sync>;

/// The figures of a controller at one scrape.
struct Reading {
    figures: ControllerStats,
    /// How many calls it may make at a time.
    most: usize,
    durations: Durations,
}

impl ControllerMetrics {
    /// These and those of `controller`, with `name` as their label.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, controller: &RunningController) -> Self {
        let crew = controller.weak();
        let read = move || {
            let crew = crew.upgrade()?;
            Some(Reading { figures: crew.figures(), most: crew.concurrency, durations: crew.counted.durations() })
        };
        self.controllers.push((name.into(), Box::new(read)));
        self
    }
}

/// The controllers as they are at one scrape.
type Readings<'a> = [(&'a str, ControllerStats, usize)];

impl Collector for ControllerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read: Vec<_> = self.controllers.iter().filter_map(|(name, read)| Some((name.as_str(), read()?))).collect();
        let all: Vec<_> = read.iter().map(|(name, reading)| (*name, reading.figures, reading.most)).collect();
        durations(&mut encoder, &read)?;
        results(&mut encoder, &all)?;
        let mut counter = |name, unit: Option<Unit>, help, read: fn(&ControllerStats) -> f64| {
            family(&mut encoder, (name, unit, help), &all, |figures, _| ConstCounter::new(read(figures)))
        };
        counter("controller_runtime_reconcile_errors", None, "Calls that failed, whatever way", |figures| {
            (figures.failed + figures.panicked + figures.timed_out) as f64
        })?;
        counter("controller_runtime_reconcile_panics", None, "Calls that panicked", |figures| figures.panicked as f64)?;
        counter("controller_runtime_reconcile_timeouts", None, "Calls that took longer than they may", |figures| {
            figures.timed_out as f64
        })?;
        counter(
            "steadfast_controller_waits_for_writes",
            None,
            "Calls that waited until caches had what the call before wrote, or what led to it",
            |figures| figures.waits_for_writes as f64,
        )?;
        counter(
            "steadfast_controller_waited_for_writes",
            Some(Unit::Seconds),
            "How long all those calls together waited",
            |figures| figures.waited_for_writes.as_secs_f64(),
        )?;
        counter(
            "steadfast_controller_catch_ups",
            None,
            "How often keys waited until caches had what another process had written",
            |figures| figures.catch_ups as f64,
        )?;
        counter(
            "steadfast_controller_caught_up",
            Some(Unit::Seconds),
            "How long they waited for that, all together",
            |figures| figures.caught_up.as_secs_f64(),
        )?;
        counter(
            "steadfast_controller_keys_outside_scope",
            None,
            "Keys that sources mapped to and that no object of the controller can have",
            |figures| figures.outside_scope as f64,
        )?;
        counter(
            "steadfast_controller_pauses",
            None,
            "How often nothing was called since a cache was in doubt for too long",
            |figures| figures.pauses as f64,
        )?;
        let mut gauge = |name, help, read: fn(&ControllerStats, usize) -> usize| {
            family(&mut encoder, (name, None, help), &all, |figures, most| ConstGauge::new(read(figures, most) as f64))
        };
        gauge("controller_runtime_active_workers", "Calls that are under way", |figures, _| figures.running)?;
        gauge("controller_runtime_max_concurrent_reconciles", "Calls there may be at a time", |_, most| most)?;
        gauge("steadfast_controller_blocked", "Calls that hold up their threads", |figures, _| figures.blocked)?;
        gauge(
            "steadfast_controller_slowed",
            "Keys that wanted to be called again at once, time after time, and are slowed down",
            |figures, _| figures.slowed,
        )?;
        gauge(
            "steadfast_controller_waiting_for_writes",
            "Keys that wait until caches have what the call before wrote, or what led to it",
            |figures, _| figures.waiting_for_writes,
        )?;
        gauge(
            "steadfast_controller_catching_up",
            "Whether keys wait until caches have what another process has written",
            |figures, _| usize::from(figures.catching_up),
        )?;
        gauge(
            "steadfast_controller_paused",
            "Whether nothing is called since a cache has been in doubt for too long",
            |figures, _| usize::from(figures.paused),
        )
    }
}

/// How long calls have taken.
fn durations(encoder: &mut DescriptorEncoder<'_>, all: &[(&str, Reading)]) -> fmt::Result {
    let (name, help) = ("controller_runtime_reconcile_time", "How long calls have taken, however they ended");
    let mut encoder = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (name, Reading { durations: Durations { count, sum, classes }, .. }) in all {
        let bounds = Durations::BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(*classes).collect();
        let labels = [("controller", *name)];
        let mut encoder = encoder.encode_family(&labels)?;
        encoder.encode_histogram::<[(&str, &str); 1]>(sum.as_secs_f64(), *count, &buckets, None)?;
    }
    Ok(())
}

/// Calls by what they came to.
fn results(encoder: &mut DescriptorEncoder<'_>, all: &Readings<'_>) -> fmt::Result {
    let counted = ConstCounter::new(0.0);
    let help = "Calls by what they came to";
    let mut encoder = encoder.encode_descriptor("controller_runtime_reconcile", help, None, counted.metric_type())?;
    for (name, figures, _) in all {
        let errors = figures.failed + figures.panicked + figures.timed_out;
        for (result, count) in [("success", figures.succeeded), ("requeue", figures.requeued), ("error", errors)] {
            let labels = [("controller", *name), ("result", result)];
            ConstCounter::new(count as f64).encode(encoder.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// One sample of each controller.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, unit, help): (&str, Option<Unit>, &str),
    all: &Readings<'_>,
    sample: impl Fn(&ControllerStats, usize) -> M,
) -> fmt::Result {
    let Some((_, first, most)) = all.first() else { return Ok(()) };
    let kind = sample(first, *most).metric_type();
    let mut encoder = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (controller, figures, most) in all {
        let labels = [("controller", *controller)];
        sample(figures, *most).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerMetrics").field("controllers", &self.controllers.len()).finish()
    }
}
