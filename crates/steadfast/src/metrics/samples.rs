//! Metric families and their samples, as types of `prometheus-client`.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::call_durations::{CALL_BOUNDS, CallHistogram};
use super::pool_counters::{LATENCIES, Latencies};

/// Label names and values.
pub(super) type LabelSet = Vec<(&'static str, String)>;

/// Name, unit and help text of a metric family.
pub(super) struct Family {
    /// Name without the unit and without `_total`; the encoder adds both.
    pub(super) name: &'static str,
    pub(super) unit: Option<Unit>,
    /// Description in one line.
    pub(super) help: &'static str,
}

/// Encoder of the samples of one family.
pub(super) struct Samples<'a> {
    encoder: prometheus_client::encoding::MetricEncoder<'a>,
}

impl Family {
    /// Writes the header of the family, even if it has no samples, then `samples`.
    pub(super) fn write(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        kind: MetricType,
        samples: impl FnOnce(&mut Samples<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let encoder = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        samples(&mut Samples { encoder })
    }
}

impl Samples<'_> {
    pub(super) fn counter(&mut self, labels: &LabelSet, value: u64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_counter::<LabelSet, u64, u64>(&value, None)
    }

    pub(super) fn gauge(&mut self, labels: &LabelSet, value: f64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_gauge(&value)
    }

    pub(super) fn latencies(&mut self, labels: &LabelSet, latencies: &Latencies) -> fmt::Result {
        self.histogram(labels, &LATENCIES, &latencies.counts, latencies.sum)
    }

    pub(super) fn calls(&mut self, labels: &LabelSet, calls: &CallHistogram) -> fmt::Result {
        self.histogram(labels, &CALL_BOUNDS, &calls.counts, calls.sum)
    }

    /// Writes a histogram. `counts` has one more entry than `bounds`, for larger values.
    fn histogram(&mut self, labels: &LabelSet, bounds: &[f64], counts: &[u64], sum: f64) -> fmt::Result {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        self.encoder.encode_family(labels)?.encode_histogram::<LabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}
