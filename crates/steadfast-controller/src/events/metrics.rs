//! Prometheus metrics of recorders. client-go has no equivalent.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::stats::EventStats;

/// Reads the values of a recorder. Returns none after its end.
type RecorderReader = Box<dyn Fn() -> Option<EventStats> + Send + Sync>;

/// Registered recorders, by name.
#[derive(Default)]
pub(super) struct Recorders {
    recorders: Vec<(String, RecorderReader)>,
}

impl Recorders {
    pub(super) fn add(&mut self, name: String, reader: RecorderReader) {
        self.recorders.push((name, reader));
    }

    pub(super) fn len(&self) -> usize {
        self.recorders.len()
    }

    /// Encodes the samples of each recorder and metric.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.recorders.iter().filter_map(|(name, read)| Some((name, read()?))).collect();
        let mut counter = |name, help, label, sample: &dyn Fn(&EventStats) -> Vec<(&'static str, u64)>| {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (recorder, stats) in &all {
                for (value, count) in sample(stats) {
                    let labels = [("recorder", recorder.as_str()), (label, value)];
                    let mut encoder = encoder.encode_family(&labels)?;
                    encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&count, None)?;
                }
            }
            Ok(())
        };
        counter("steadfast_events_settled", "Recorded events with a final outcome, by outcome", "result", &|stats| {
            let EventStats { delivered, filtered, dropped, failed, .. } = *stats;
            vec![("delivered", delivered), ("filtered", filtered), ("dropped", dropped), ("failed", failed)]
        })?;
        counter("steadfast_events_requests", "Requests for events, by outcome", "result", &|stats| {
            vec![("created", stats.creates), ("patched", stats.patches), ("retried", stats.retries)]
        })?;
        let mut plain = |name, help, kind: MetricType, sample: fn(&EventStats) -> u64| {
            let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
            for (recorder, stats) in &all {
                let labels = [("recorder", recorder.as_str())];
                let (mut encoder, value) = (encoder.encode_family(&labels)?, sample(stats));
                match kind {
                    MetricType::Gauge => encoder.encode_gauge(&(value as f64))?,
                    _ => encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&value, None)?,
                }
            }
            Ok::<_, fmt::Error>(())
        };
        plain("steadfast_events_recorded", "Recorded events", MetricType::Counter, |stats| stats.recorded)?;
        plain(
            "steadfast_events_combined",
            "Recorded events that were combined with similar ones",
            MetricType::Counter,
            |stats| stats.combined,
        )?;
        plain(
            "steadfast_events_waiting",
            "Recorded events that the server has not counted yet",
            MetricType::Gauge,
            |stats| stats.waiting,
        )?;
        plain("steadfast_events_queue_length", "Events that wait for a request", MetricType::Gauge, |stats| {
            stats.queued as u64
        })?;
        plain("steadfast_events_series", "Events that accept further recordings", MetricType::Gauge, |stats| {
            stats.series as u64
        })
    }
}
