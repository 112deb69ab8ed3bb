//! Report of findings: one line for each start and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde_json::{Map, Value};
use steadfast_audit::{AuditFinding, AuditFindingState};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

use crate::clock::format_micros;
use crate::console;
use crate::failure::Failure;
use crate::output_format::Output;

/// Maximum number of findings that wait for a slow reader of the output. Further findings are counted only.
const MAX_PENDING_FINDINGS: usize = 4096;

/// Accepts findings without blocking. Cheap to clone.
#[derive(Clone)]
pub(super) struct FindingSink {
    sender: Sender<(Timestamp, AuditFinding)>,
    started_count: Arc<AtomicU64>,
    skipped: Arc<AtomicU64>,
}

impl FindingSink {
    /// Counts a finding, and queues the finding for the output.
    pub(super) fn accept(&self, finding: &AuditFinding) {
        // Relaxed is enough: the counters order no other data.
        if finding.state == AuditFindingState::Started {
            self.started_count.fetch_add(1, Ordering::Relaxed);
        }
        if self.sender.try_send((Timestamp::now(), finding.clone())).is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes the findings of a [`FindingSink`].
pub(super) struct FindingWriter {
    output: Output,
    received: Receiver<(Timestamp, AuditFinding)>,
    started_count: Arc<AtomicU64>,
    skipped: Arc<AtomicU64>,
}

/// Creates the queue of findings.
pub(super) fn queue(output: Output) -> (FindingSink, FindingWriter) {
    let (sender, received) = channel(MAX_PENDING_FINDINGS);
    let (started_count, skipped) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let sink = FindingSink { sender, started_count: started_count.clone(), skipped: skipped.clone() };
    (sink, FindingWriter { output, received, started_count, skipped })
}

impl FindingWriter {
    /// Returns the counter of the findings that started.
    pub(super) fn started_count(&self) -> Arc<AtomicU64> {
        self.started_count.clone()
    }

    /// Writes findings until all sinks are dropped: text to standard error, JSON to standard output.
    ///
    /// # Errors
    ///
    /// Returns an error if standard output cannot be written to.
    pub(super) async fn run(mut self) -> Result<(), Failure> {
        while let Some((time, finding)) = self.received.recv().await {
            let skipped = self.skipped.swap(0, Ordering::Relaxed);
            if skipped > 0 {
                console::report(format_args!("{skipped} findings are not shown: the output is not read fast enough"));
            }
            let line = line(self.output, time, &finding);
            let output = self.output;
            // A full pipe blocks the write. On a thread of its own, the write does not keep the program from stopping
            // when requested.
            let written = spawn_blocking(move || match output {
                Output::Text => {
                    console::report(line);
                    Ok(())
                }
                Output::Json => console::print(&format!("{line}\n")).map(drop),
            });
            written.await.map_err(Failure::run)??;
        }
        Ok(())
    }
}

/// Returns the line of a finding.
fn line(output: Output, time: Timestamp, finding: &AuditFinding) -> String {
    match output {
        Output::Text => format!("{} {finding}", format_micros(time)),
        Output::Json => json_line(time, finding).to_string(),
    }
}

fn json_line(time: Timestamp, finding: &AuditFinding) -> Value {
    let (state, duration) = match finding.state {
        AuditFindingState::Started => ("Started", None),
        AuditFindingState::Ended(lasted) => ("Ended", Some(lasted.as_secs_f64())),
    };
    let mut line = Map::new();
    let mut set = |name: &str, value: Value| line.insert(name.to_owned(), value);
    set("time", format_micros(time).into());
    set("type", "Finding".into());
    set("finding", finding.kind.name().into());
    set("state", state.into());
    set("endpoint", finding.endpoint.as_str().into());
    set("resource", finding.resource.as_deref().into());
    set("evidence", finding.evidence.as_str().into());
    if let Some(duration) = duration {
        set("durationSeconds", duration.into());
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use steadfast::environment::Instant;
    use steadfast_audit::{AuditFailure, AuditInput, AuditOutput, AuditReply, AuditSettings, Auditor};

    use super::*;

    /// Returns a finding of a rejected resource.
    fn rejected() -> AuditFinding {
        let mut auditor = Auditor::new(Instant::ZERO, &["a:1".into()], &["pods".into()], AuditSettings::default());
        for output in auditor.step(Instant::ZERO, AuditInput::Tick) {
            if let AuditOutput::Send { request, .. } = output {
                let failure = AuditFailure::Status(403, "forbidden\n\u{1b}[31m".to_owned());
                for output in auditor.step(Instant::ZERO, AuditInput::Reply(request, AuditReply::Failed(failure))) {
                    if let AuditOutput::Finding(finding) = output {
                        return finding;
                    }
                }
            }
        }
        panic!("no finding");
    }

    #[test]
    fn finding_is_one_line() {
        let finding = rejected();
        let text = line(Output::Text, Timestamp::UNIX_EPOCH, &finding);
        assert!(text.starts_with("1970-01-01T00:00:00.000000Z a:1, pods: the resource is not audited (not-audited): "));
        assert!(!text.contains(['\n', '\u{1b}']), "{text:?}");
        let json: Value =
            serde_json::from_str(&line(Output::Json, Timestamp::UNIX_EPOCH, &finding)).expect("valid JSON");
        assert_eq!((&json["finding"], &json["resource"]), (&"not-audited".into(), &"pods".into()), "{json}");
        assert!(json.get("durationSeconds").is_none(), "{json}");
    }

    #[test]
    fn full_queue_counts_skipped_findings() {
        let (sink, writer) = queue(Output::Text);
        let finding = rejected();
        (0..MAX_PENDING_FINDINGS + 3).for_each(|_| sink.accept(&finding));
        assert_eq!(writer.started_count().load(Ordering::Relaxed), MAX_PENDING_FINDINGS as u64 + 3);
        assert_eq!(writer.skipped.load(Ordering::Relaxed), 3);
    }
}
