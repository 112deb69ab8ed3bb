//! Metrics of the audit, for Prometheus.
//!
//! The labels are bounded: endpoints and resources of the start, and the kinds of findings.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge, Histogram};
use prometheus_client::registry::Unit::Seconds;
use steadfast_audit::{AuditFindingKind, AuditStats, DELAY_BUCKETS, EndpointStats, StreamStats};

use crate::metric_family::{Family, Sample, encode_family};

const PREFIX: &str = "steadfast_audit";

/// Snapshot of the audit for one scrape.
#[derive(Debug)]
pub(super) struct AuditMetrics(pub(super) AuditStats);

/// Returns the age in seconds. Infinity instead of an absent sample: an alert on the age also fires before the first event.
fn age(age: Option<Duration>) -> f64 {
    age.map_or(f64::INFINITY, |age| age.as_secs_f64())
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

impl AuditMetrics {
    fn per_endpoint(&self, value: fn(&EndpointStats) -> f64) -> Vec<Sample> {
        let endpoints = self.0.endpoints.iter();
        let sample =
            |stats: &EndpointStats| Sample { labels: vec![("endpoint", stats.endpoint.clone())], value: value(stats) };
        endpoints.map(sample).collect()
    }

    /// Returns a sample for each kind of finding, so that no series appears only with its first finding.
    fn per_finding(&self, value: fn(&(AuditFindingKind, usize, u64)) -> f64) -> Vec<Sample> {
        let findings = self.0.endpoints.iter().flat_map(|stats| stats.findings.iter().map(move |all| (stats, all)));
        let sample = |(stats, finding): (&EndpointStats, &(AuditFindingKind, usize, u64))| Sample {
            labels: vec![("endpoint", stats.endpoint.clone()), ("finding", finding.0.name().to_owned())],
            value: value(finding),
        };
        findings.map(sample).collect()
    }

    fn streams(&self) -> impl Iterator<Item = ([(&'static str, String); 2], &StreamStats)> {
        self.0.endpoints.iter().flat_map(|stats| {
            stats.streams.iter().map(move |stream| {
                ([("endpoint", stats.endpoint.clone()), ("resource", stream.resource.clone())], stream)
            })
        })
    }

    fn per_stream(&self, value: fn(&StreamStats) -> Option<f64>) -> Vec<Sample> {
        let sample = |(labels, stream): ([(&'static str, String); 2], &StreamStats)| {
            Some(Sample { labels: labels.to_vec(), value: value(stream)? })
        };
        self.streams().filter_map(sample).collect()
    }

    fn encode_delays(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Delay of a watch after the first delivery of each change by any source";
        let name = format!("{PREFIX}_watch_delay");
        let mut encoder = encoder.encode_descriptor(&name, help, Some(&Seconds), Histogram)?;
        for (labels, StreamStats { delays, .. }) in self.streams() {
            let bounds = DELAY_BUCKETS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(delays.counts).collect();
            let labels: Vec<(&str, &str)> = labels.iter().map(|(label, name)| (*label, name.as_str())).collect();
            let count = delays.counts.iter().sum();
            let mut encoder = encoder.encode_family(&labels)?;
            encoder.encode_histogram::<[(&str, &str); 0]>(delays.sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

impl Collector for AuditMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_delays(&mut encoder)?;
        let mut write = |family: Family, samples: Vec<Sample>| encode_family(&mut encoder, PREFIX, family, samples);
        let help = "Active findings, by endpoint and kind";
        write(("active_findings", None, help, Gauge), self.per_finding(|(_, active, _)| *active as f64))?;
        let help = "Findings that started, by endpoint and kind";
        write(("findings", None, help, Counter), self.per_finding(|(_, _, total)| *total as f64))?;
        let help = "Whether the endpoint responds";
        write(("endpoint_responsive", None, help, Gauge), self.per_endpoint(|endpoint| flag(endpoint.is_responsive)))?;
        let help = "Time since the last response or watch record of the endpoint; infinite before the first one";
        let ages = self.per_endpoint(|endpoint| age(endpoint.last_response_age));
        write(("last_response_age", Some(Seconds), help, Gauge), ages)?;
        let help = "Requests of the audit to the endpoint";
        write(("requests", None, help, Counter), self.per_endpoint(|endpoint| endpoint.requests as f64))?;
        let help = "Whether the watch is open";
        write(("watch_open", None, help, Gauge), self.per_stream(|stream| Some(flag(stream.is_open))))?;
        let help = "Age of the oldest change that the watch has not delivered";
        let lags = self.per_stream(|stream| Some(stream.lag.as_secs_f64()));
        write(("watch_lag", Some(Seconds), help, Gauge), lags)?;
        let help = "Events that the watch has lost";
        write(("lost_events", None, help, Counter), self.per_stream(|stream| Some(stream.lost_events as f64)))?;
        let help = "Time since the last bookmark, or since the start of the watch; absent without an open watch";
        let bookmarks = self.per_stream(|stream| stream.bookmark_age.map(|age| age.as_secs_f64()));
        write(("bookmark_age", Some(Seconds), help, Gauge), bookmarks)?;
        let help = "Objects of the resource, as the endpoint's watch shows them";
        write(("objects", None, help, Gauge), self.per_stream(|stream| Some(stream.objects as f64)))?;
        let help = "Time since the last complete list of the resource; infinite before the first one";
        let lists = self.per_stream(|stream| Some(age(stream.last_list_age)));
        write(("last_list_age", Some(Seconds), help, Gauge), lists)
    }
}

#[cfg(test)]
mod monitoring;

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use steadfast::environment::Instant;
    use steadfast_audit::{AuditFailure, AuditInput, AuditOutput, AuditReply, AuditSettings, Auditor};
    use steadfast_testing::Exposition;

    use super::*;

    /// Returns the metrics of an audit of two endpoints, of which the second one exceeds each deadline.
    pub(super) fn exposition() -> Exposition {
        let names = |names: [&str; 2]| names.map(str::to_owned);
        let endpoints = names(["10.0.0.1:6443", "10.0.0.2:6443"]);
        let mut auditor = Auditor::new(Instant::ZERO, &endpoints, &names(["pods", "nodes"]), AuditSettings::default());
        let mut now = Instant::ZERO;
        for _ in 0..60 {
            now = Instant::from_zero(now.since(Instant::ZERO) + Duration::from_secs(1));
            for output in auditor.step(now, AuditInput::Tick) {
                if let AuditOutput::Send { request, endpoint: 1, .. } = output {
                    auditor.step(now, AuditInput::Reply(request, AuditReply::Failed(AuditFailure::Deadline)));
                }
            }
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(AuditMetrics(auditor.stats(now))));
        let mut text = String::new();
        encode(&mut text, &registry).expect("the metrics are encoded");
        Exposition::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn scrape_has_fixed_label_sets() {
        let metrics = exposition();
        let count = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, labels).1;
        let kinds = AuditFindingKind::ALL.len();
        assert_eq!(count("steadfast_audit_active_findings", &[]), 2 * kinds);
        assert_eq!(count("steadfast_audit_findings_total", &[("finding", "lost-events")]), 2);
        assert_eq!(count("steadfast_audit_lost_events_total", &[]), 4);
        assert_eq!(count("steadfast_audit_watch_delay_seconds_bucket", &[("resource", "pods")]), 2 * 8);
        assert_eq!(count("steadfast_audit_watch_open", &[("resource", "nodes")]), 2);
        // Without an open watch, no age of bookmarks exists.
        assert_eq!(count("steadfast_audit_bookmark_age_seconds", &[]), 0);
    }

    #[test]
    fn scrape_shows_unresponsive_endpoint() {
        let metrics = exposition();
        let endpoint = ("endpoint", "10.0.0.2:6443");
        assert_eq!(metrics.sum("steadfast_audit_endpoint_responsive", &[endpoint]), (0.0, 1));
        let finding = [endpoint, ("finding", "unresponsive")];
        assert_eq!(metrics.sum("steadfast_audit_active_findings", &finding), (1.0, 1));
        assert_eq!(metrics.sum("steadfast_audit_findings_total", &finding), (1.0, 1));
        assert!(metrics.sum("steadfast_audit_last_list_age_seconds", &[endpoint]).0.is_infinite());
        assert!(metrics.sum("steadfast_audit_requests_total", &[endpoint]).0 > 5.0);
    }
}
