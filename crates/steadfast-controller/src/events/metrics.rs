//! The figures of recorders as a scrape of Prometheus reads them. client-go has none of these.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::figures::EventStats;

/// Reads the figures of a recorder, if there still is one.
type Reader = Box<dyn Fn() -> Option<EventStats> + Send + Sync>;

/// The recorders that are told of, each by a name.
#[derive(Default)]
pub(super) struct Recorders {
    recorders: Vec<(String, Reader)>,
}

impl Recorders {
    pub(super) fn add(&mut self, name: String, reader: Reader) {
        self.recorders.push((name, reader));
    }

    pub(super) fn len(&self) -> usize {
        self.recorders.len()
    }

    /// Writes the samples of each recorder for each family.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> = self.recorders.iter().filter_map(|(name, read)| Some((name, read()?))).collect();
        let mut counter = |name, help, label, sample: &dyn Fn(&EventStats) -> Vec<(&'static str, u64)>| {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (recorder, figures) in &all {
                for (value, count) in sample(figures) {
                    let labels = [("recorder", recorder.as_str()), (label, value)];
                    let mut encoder = encoder.encode_family(&labels)?;
                    encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&count, None)?;
                }
            }
            Ok(())
        };
        counter(
            "steadfast_events_settled",
            "Recorded events of which is known what became of them, by that",
            "result",
            &|figures| {
                let EventStats { delivered, filtered, dropped, failed, .. } = *figures;
                vec![("delivered", delivered), ("filtered", filtered), ("dropped", dropped), ("failed", failed)]
            },
        )?;
        counter(
            "steadfast_events_requests",
            "Requests made for events, by what became of them",
            "result",
            &|figures| vec![("created", figures.creates), ("patched", figures.patches), ("again", figures.retries)],
        )?;
        let mut plain = |name, help, kind: MetricType, sample: fn(&EventStats) -> u64| {
            let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
            for (recorder, figures) in &all {
                let labels = [("recorder", recorder.as_str())];
                let (mut encoder, value) = (encoder.encode_family(&labels)?, sample(figures));
                match kind {
                    MetricType::Gauge => encoder.encode_gauge(&(value as f64))?,
                    _ => encoder.encode_counter::<[(&str, &str); 1], u64, u64>(&value, None)?,
                }
            }
            Ok::<_, fmt::Error>(())
        };
        plain("steadfast_events_recorded", "Events that were recorded", MetricType::Counter, |figures| {
            figures.recorded
        })?;
        plain(
            "steadfast_events_combined",
            "Recorded events that were combined with similar ones",
            MetricType::Counter,
            |figures| figures.combined,
        )?;
        plain(
            "steadfast_events_waiting",
            "Recorded events that the server's counts do not have yet",
            MetricType::Gauge,
            |figures| figures.waiting,
        )?;
        plain("steadfast_events_queue_length", "Events that wait for a request", MetricType::Gauge, |figures| {
            figures.queued as u64
        })?;
        plain("steadfast_events_series", "Events that further ones can be counted in", MetricType::Gauge, |figures| {
            figures.series as u64
        })
    }
}
