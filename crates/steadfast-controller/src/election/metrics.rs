//! Who leads, as a scrape of Prometheus reads it, under the names that client-go has made known.

use std::fmt;
use std::sync::Weak;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::office::Office;

/// The elections that are told of, each by a name.
#[derive(Default)]
pub(super) struct Elections {
    elections: Vec<(String, Weak<Office>)>,
}

impl Elections {
    pub(super) fn add(&mut self, name: String, office: Weak<Office>) {
        self.elections.push((name, office));
    }

    pub(super) fn len(&self) -> usize {
        self.elections.len()
    }

    /// Writes one sample of each election for each family.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> =
            self.elections.iter().filter_map(|(name, office)| Some((name.as_str(), office.upgrade()?))).collect();
        let help = "Whether this process is the leader: 1, or 0";
        let mut family = encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
        for (name, office) in &all {
            let status = ConstGauge::new(i64::from(office.term().is_some()));
            status.encode(family.encode_family(&[("name", *name)])?)?;
        }
        let help = "Renewals by a leader that failed at the first attempt";
        let mut family = encoder.encode_descriptor("leader_election_slowpath", help, None, MetricType::Counter)?;
        for (name, office) in &all {
            ConstCounter::new(office.slow_paths()).encode(family.encode_family(&[("name", *name)])?)?;
        }
        Ok(())
    }
}
