//! Families and their samples, in the terms of `prometheus-client`.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::traffic::{LATENCIES, Latencies};

/// Names and values of labels.
pub(super) type LabelSet = Vec<(&'static str, String)>;

/// A family: what its name, unit and help say.
pub(super) struct Family {
    /// Without its unit and without `_total`, which are added when it is written.
    pub(super) name: &'static str,
    pub(super) unit: Option<Unit>,
    /// What it is, in one line.
    pub(super) help: &'static str,
}

/// The samples of one family, as they are written.
pub(super) struct Samples<'a> {
    encoder: prometheus_client::encoding::MetricEncoder<'a>,
}

impl Family {
    /// Writes the family's head, also where it has no samples, then `samples`.
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
        let bounds = LATENCIES.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latencies.counts).collect();
        let count = latencies.counts.iter().sum();
        self.encoder.encode_family(labels)?.encode_histogram::<LabelSet>(latencies.sum, count, &buckets, None)
    }
}
