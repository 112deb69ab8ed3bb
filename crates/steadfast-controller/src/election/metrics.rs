//! Prometheus metrics of elections, under client-go's names.

use std::fmt;
use std::sync::Weak;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::state::ElectionState;

/// Registered elections, by name.
#[derive(Default)]
pub(super) struct Elections {
    elections: Vec<(String, Weak<ElectionState>)>,
}

impl Elections {
    pub(super) fn add(&mut self, name: String, state: Weak<ElectionState>) {
        self.elections.push((name, state));
    }

    pub(super) fn len(&self) -> usize {
        self.elections.len()
    }

    /// Encodes one sample per election and metric.
    pub(super) fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all: Vec<_> =
            self.elections.iter().filter_map(|(name, state)| Some((name.as_str(), state.upgrade()?))).collect();
        let help = "1 if this process is the leader, otherwise 0";
        let mut family = encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
        for (name, state) in &all {
            let status = ConstGauge::new(i64::from(state.term().is_some()));
            status.encode(family.encode_family(&[("name", *name)])?)?;
        }
        let help = "Renewals by a leader that failed at the first attempt";
        let mut family = encoder.encode_descriptor("leader_election_slowpath", help, None, MetricType::Counter)?;
        for (name, state) in &all {
            ConstCounter::new(state.slow_renewals()).encode(family.encode_family(&[("name", *name)])?)?;
        }
        Ok(())
    }
}
