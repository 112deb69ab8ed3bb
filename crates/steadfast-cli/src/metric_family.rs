//! One metric with its samples, for collectors whose samples come from a snapshot.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{self, Counter};
use prometheus_client::registry::Unit;

/// One sample of a metric, with its labels.
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

/// A counter or gauge: its name, unit, help text and type.
pub(crate) type Family = (&'static str, Option<Unit>, &'static str, MetricType);

/// Encodes one metric, with `prefix` before its name, and its samples.
pub(crate) fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    prefix: &str,
    (name, unit, help, kind): Family,
    samples: Vec<Sample>,
) -> fmt::Result {
    let name = format!("{prefix}_{name}");
    // The encoder adds the suffix `_total` to counters, and the unit to the name.
    let mut encoder = encoder.encode_descriptor(&name, help, unit.as_ref(), kind)?;
    for Sample { labels, value } in samples {
        let labels: Vec<(&str, &str)> = labels.iter().map(|(label, name)| (*label, name.as_str())).collect();
        let mut encoder = encoder.encode_family(&labels)?;
        match kind {
            Counter => encoder.encode_counter::<[(&str, &str); 0], f64, u64>(&value, None)?,
            _ => encoder.encode_gauge(&value)?,
        }
    }
    Ok(())
}
