//! Collector that reads all counters and states at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge, Histogram};

use super::families as family;
use super::informer_counters::{self, CAUSES, DECODE_FAILURES, DIAGNOSTICS, InformerCounters, OUTCOMES, SOURCES};
use super::observed::{InformerLabels, InformerReading};
use super::pool_counters::{Code, Totals};
use super::samples::{Family, LabelSet};
use crate::connection::{Connection, WeakConnection};
use crate::handler_stats::HandlerReading;
use crate::memory::Memory;
use crate::transport::{ConnectionReport, ConnectionState};

/// Names of all freshness states.
const STATES: [&str; 7] = ["fresh", "starting", "resuming", "suspect", "stale", "failed", "stopped"];

/// Prometheus collector for connections, their informers and handlers.
///
/// Register one collector for all connections of a program, because each family may be registered only once. The
/// collector keeps nothing alive: items that have ended are missing from the next scrape.
pub struct Metrics {
    connections: Vec<WeakConnection>,
}

impl Metrics {
    /// Creates a collector for `connections`.
    pub fn new<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> Self {
        Self { connections: connections.into_iter().map(Connection::downgrade).collect() }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("connections", &self.connections.len()).finish()
    }
}

/// Connection pool at a scrape.
struct ServerReading {
    labels: LabelSet,
    connections: Vec<ConnectionReport>,
    dials: u64,
    totals: Totals,
}

/// All states at a scrape.
struct Scrape {
    servers: Vec<ServerReading>,
    informers: Vec<(LabelSet, InformerReading)>,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let scrape = self.scrape();
        scrape.connections(&mut encoder)?;
        scrape.requests(&mut encoder)?;
        scrape.states(&mut encoder)?;
        scrape.counts(&mut encoder)?;
        scrape.handlers(&mut encoder)
    }
}

impl Metrics {
    fn scrape(&self) -> Scrape {
        let mut scrape = Scrape { servers: Vec::new(), informers: Vec::new() };
        let mut names: Vec<String> = Vec::new();
        for connection in &self.connections {
            // The name is assigned before the weak reference is upgraded, so names stay stable if another server is
            // dropped.
            let server = connection.server();
            let same = names.iter().filter(|name| *name == server).count();
            names.push(server.to_owned());
            let server = if same == 0 { server.to_owned() } else { format!("{server}#{same}") };
            let Some(connection) = connection.upgrade() else { continue };
            let labels = vec![("server", server)];
            for (informer, reading) in connection.observed().read() {
                scrape.informers.push((informer_labels(&labels, informer), reading));
            }
            let (connections, dials, totals) = connection.traffic();
            scrape.servers.push(ServerReading { labels, connections, dials, totals });
        }
        scrape
    }
}

fn informer_labels(server: &LabelSet, informer: InformerLabels) -> LabelSet {
    let InformerLabels { group, version, resource, namespace, selector, name, ordinal } = informer;
    let own = [
        ("group", group),
        ("version", version),
        ("resource", resource),
        ("namespace", namespace),
        ("selector", selector),
        ("informer", ordinal.to_string()),
    ];
    let name = name.map(|name| ("informer_name", name.to_string()));
    server.iter().cloned().chain(own).chain(name).collect()
}

/// Returns `labels` with `more` appended.
fn with_labels<const N: usize>(labels: &LabelSet, more: [(&'static str, &str); N]) -> LabelSet {
    labels.iter().cloned().chain(more.map(|(name, value)| (name, value.to_owned()))).collect()
}

/// Roles of connections: label and value of the report's `watches` flag.
const ROLES: [(&str, bool); 2] = [("watches", true), ("requests", false)];

impl Scrape {
    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family::CONNECTIONS.write(encoder, Gauge, |samples| {
            for server in &self.servers {
                for (labels, count) in server.connection_counts() {
                    samples.gauge(&labels, count as f64)?;
                }
            }
            Ok(())
        })?;
        family::STREAMS.write(encoder, Gauge, |samples| {
            for server in &self.servers {
                for (role, watches) in ROLES {
                    let of_role = server.connections.iter().filter(|report| report.carries_watches == watches);
                    let streams: usize = of_role.map(|report| report.streams).sum();
                    samples.gauge(&with_labels(&server.labels, [("role", role)]), streams as f64)?;
                }
            }
            Ok(())
        })?;
        self.per_server(encoder, &family::DIALS, |server| server.dials)?;
        family::FAILED_DIALS.write(encoder, Counter, |samples| {
            for server in &self.servers {
                for (cause, count) in &server.totals.failed_dials {
                    samples.counter(&with_labels(&server.labels, [("cause", cause)]), *count)?;
                }
            }
            Ok(())
        })?;
        family::CLOSED.write(encoder, Counter, |samples| {
            for server in &self.servers {
                for (cause, count) in &server.totals.closed {
                    samples.counter(&with_labels(&server.labels, [("cause", cause)]), *count)?;
                }
            }
            Ok(())
        })?;
        self.max_per_server(encoder, &family::ROUND_TRIP, |report| report.round_trip)?;
        // A connection in its dial has not received anything yet.
        let silence =
            |report: &ConnectionReport| (report.state != ConnectionState::Connecting).then_some(report.silence);
        self.max_per_server(encoder, &family::SILENCE, silence)?;
        self.per_server(encoder, &family::RECEIVED, |server| {
            // Totals contain closed connections only. Open ones are added, so that the counter never falls.
            server.totals.received + server.connections.iter().map(|report| report.received).sum::<u64>()
        })?;
        self.per_server(encoder, &family::SENT, |server| {
            server.totals.sent + server.connections.iter().map(|report| report.sent).sum::<u64>()
        })
    }

    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family::REQUESTS.write(encoder, Counter, |samples| {
            for server in &self.servers {
                for ((verb, code), count) in &server.totals.requests {
                    let code = match code {
                        Code::Status(status) => status.to_string(),
                        Code::Error(error) => (*error).to_owned(),
                    };
                    samples.counter(&with_labels(&server.labels, [("verb", verb), ("code", &code)]), *count)?;
                }
            }
            Ok(())
        })?;
        family::DURATION.write(encoder, Histogram, |samples| {
            for server in &self.servers {
                for (verb, latencies) in &server.totals.latencies {
                    samples.latencies(&with_labels(&server.labels, [("verb", verb)]), latencies)?;
                }
            }
            Ok(())
        })
    }

    fn states(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.per_informer(encoder, &family::SYNCED, |informer| Some(f64::from(u8::from(informer.synced))))?;
        family::FRESHNESS.write(encoder, Gauge, |samples| {
            for (labels, informer) in &self.informers {
                // One series per state, as the Prometheus convention for enums requires: absent states are zero.
                for state in STATES {
                    let value = u8::from(informer.freshness.name() == state);
                    samples.gauge(&with_labels(labels, [("state", state)]), value.into())?;
                }
            }
            Ok(())
        })?;
        self.per_informer(encoder, &family::AGE, |informer| Some(informer.age?.as_secs_f64()))?;
        self.per_informer(encoder, &family::DOUBT, |informer| {
            Some(informer.freshness.doubt().map_or(0.0, |doubt| doubt.elapsed.as_secs_f64()))
        })?;
        self.per_informer(encoder, &family::ATTEMPTS, |informer| Some(informer.attempts.into()))?;
        self.per_informer(encoder, &family::OBJECTS, |informer| Some(informer.objects as f64))?;
        family::MEMORY.write(encoder, Gauge, |samples| {
            for (labels, informer) in &self.informers {
                let Memory { objects, keys, indexes, queues } = informer.memory;
                for (part, bytes) in [("objects", objects), ("keys", keys), ("indexes", indexes), ("queues", queues)] {
                    samples.gauge(&with_labels(labels, [("part", part)]), bytes as f64)?;
                }
            }
            Ok(())
        })?;
        self.per_informer(encoder, &family::TAINTED, |informer| Some(informer.tainted as f64))?;
        self.per_informer(encoder, &family::VERSION, |informer| informer.version)
    }

    fn counts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let purposes = ("request", &informer_counters::REQUESTS[..]);
        self.counters(encoder, &family::SENT_REQUESTS, purposes, |counted| &counted.sent)?;
        self.counters(encoder, &family::OPENED_REQUESTS, purposes, |counted| &counted.opened)?;
        let outcome = ("outcome", &OUTCOMES[..]);
        self.counters_with_two_labels(encoder, &family::ENDED_REQUESTS, purposes, outcome, |counted, row| {
            &counted.finished[row]
        })?;
        self.counters(encoder, &family::TRANSFERS, ("cause", &CAUSES), |counted| &counted.transfers)?;
        let (kind, source) = (("type", &informer_counters::EVENTS[..]), ("source", &SOURCES[..]));
        self.counters_with_two_labels(encoder, &family::EVENTS, kind, source, |counted, row| &counted.events[row])?;
        self.counters(encoder, &family::DECODE_FAILURES, ("record", &DECODE_FAILURES), |counted| {
            &counted.decode_failures
        })?;
        self.counters(encoder, &family::DIAGNOSTICS, ("note", &DIAGNOSTICS), |counted| &counted.diagnostics)
    }

    fn handlers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family::CALLS.write(encoder, Counter, |samples| {
            for (labels, handler) in self.each_handler() {
                let counts = handler.counts;
                samples.counter(&with_labels(&labels, [("result", "returned")]), counts.returned)?;
                samples.counter(&with_labels(&labels, [("result", "panicked")]), counts.panicked)?;
            }
            Ok(())
        })?;
        family::CALL_DURATION.write(encoder, Histogram, |samples| {
            self.each_handler().try_for_each(|(labels, handler)| samples.calls(&labels, &handler.durations))
        })?;
        family::SKIPPED.write(encoder, Counter, |samples| {
            self.each_handler().try_for_each(|(labels, handler)| samples.counter(&labels, handler.counts.skipped))
        })?;
        family::MISSED.write(encoder, Counter, |samples| {
            self.each_handler().try_for_each(|(labels, handler)| samples.counter(&labels, handler.counts.missed))
        })?;
        self.per_handler(encoder, &family::QUEUE, |handler| handler.counts.entries as f64)?;
        self.per_handler(encoder, &family::RUNNING, |handler| handler.counts.running as f64)?;
        self.per_handler(encoder, &family::LAG, |handler| handler.lag.as_secs_f64())?;
        self.per_handler(encoder, &family::HANDLER_SYNCED, |handler| u8::from(handler.synced).into())
    }

    fn per_server(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        value: impl Fn(&ServerReading) -> u64,
    ) -> fmt::Result {
        family.write(encoder, Counter, |samples| {
            self.servers.iter().try_for_each(|server| samples.counter(&server.labels, value(server)))
        })
    }

    /// Returns the maximum of a time among a server's connections, or `None` without values.
    fn max_per_server(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        time: impl Fn(&ConnectionReport) -> Option<std::time::Duration>,
    ) -> fmt::Result {
        family.write(encoder, Gauge, |samples| {
            for server in &self.servers {
                if let Some(longest) = server.connections.iter().filter_map(&time).max() {
                    samples.gauge(&server.labels, longest.as_secs_f64())?;
                }
            }
            Ok(())
        })
    }

    fn per_informer(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        value: impl Fn(&InformerReading) -> Option<f64>,
    ) -> fmt::Result {
        family.write(encoder, Gauge, |samples| {
            for (labels, informer) in &self.informers {
                if let Some(value) = value(informer) {
                    samples.gauge(labels, value)?;
                }
            }
            Ok(())
        })
    }

    /// Writes counters that differ in one label.
    fn counters(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        (label, values): (&'static str, &[&str]),
        counters: impl Fn(&InformerCounters) -> &[informer_counters::Counter],
    ) -> fmt::Result {
        family.write(encoder, Counter, |samples| {
            for (labels, informer) in &self.informers {
                for (value, counter) in values.iter().zip(counters(&informer.counted)) {
                    samples.counter(&with_labels(labels, [(label, value)]), counter.get())?;
                }
            }
            Ok(())
        })
    }

    /// Writes counters that differ in two labels.
    fn counters_with_two_labels(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        (row, rows): (&'static str, &[&str]),
        (column, columns): (&'static str, &[&str]),
        counters: impl Fn(&InformerCounters, usize) -> &[informer_counters::Counter],
    ) -> fmt::Result {
        family.write(encoder, Counter, |samples| {
            for (labels, informer) in &self.informers {
                for (row_index, value) in rows.iter().enumerate() {
                    for (column_value, counter) in columns.iter().zip(counters(&informer.counted, row_index)) {
                        samples.counter(&with_labels(labels, [(row, value), (column, column_value)]), counter.get())?;
                    }
                }
            }
            Ok(())
        })
    }

    fn per_handler(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &Family,
        value: impl Fn(&HandlerReading) -> f64,
    ) -> fmt::Result {
        family.write(encoder, Gauge, |samples| {
            self.each_handler().try_for_each(|(labels, handler)| samples.gauge(&labels, value(handler)))
        })
    }

    fn each_handler(&self) -> impl Iterator<Item = (LabelSet, &HandlerReading)> {
        self.informers.iter().flat_map(|(labels, informer)| {
            informer.handlers.iter().map(|handler| {
                let ordinal = handler.ordinal.to_string();
                let mut labels = with_labels(labels, [("handler", ordinal.as_str())]);
                labels.extend(handler.name.iter().map(|name| ("handler_name", name.to_string())));
                (labels, handler)
            })
        })
    }
}

impl ServerReading {
    /// Returns the number of connections by role, protocol and state.
    fn connection_counts(&self) -> Vec<(LabelSet, usize)> {
        let mut counts: Vec<(LabelSet, usize)> = Vec::new();
        for report in &self.connections {
            let role = if report.carries_watches { "watches" } else { "requests" };
            let protocol = report.protocol.map_or_else(String::new, |protocol| protocol.to_string());
            let state = report.state.to_string();
            let labels = with_labels(&self.labels, [("role", role), ("protocol", &protocol), ("state", &state)]);
            match counts.iter_mut().find(|(counted, _)| *counted == labels) {
                Some((_, count)) => *count += 1,
                None => counts.push((labels, 1)),
            }
        }
        counts
    }
}
