//! Events of an engine for the operator.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_targets::ApprovalRequest;

/// Event for the operator of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A rule could not be evaluated for an object. The rule does not fire.
    Failed {
        /// Name of the rule.
        rule: String,
        /// Failed expression.
        expression: &'static str,
        /// The object.
        object: String,
        /// Cause.
        why: String,
        /// Number of failures of this rule. Reported at powers of two only.
        times: u64,
    },
    /// The checkpoint of an earlier run is unusable. Rules may miss changes since then.
    Anew {
        /// Resource and cluster.
        of: String,
        /// Cause.
        why: String,
    },
    /// A cache or unsettled changes cannot be written to the state folder.
    CheckpointUnsupported {
        /// Resource and cluster.
        of: String,
        /// Cause.
        why: String,
    },
    /// A sink accepts no messages. Delivery is retried.
    Troubled {
        /// Name of the sink.
        sink: String,
        /// Cause.
        why: String,
        /// Number of pending messages.
        waiting: usize,
    },
    /// A sink accepts messages again.
    Recovered {
        /// Name of the sink.
        sink: String,
        /// Number of pending messages.
        waiting: usize,
    },
    /// A message became a dead letter.
    GivenUp {
        /// Name of the sink.
        sink: String,
        /// ID of the message.
        id: String,
        /// Cause.
        why: String,
        /// Number of attempts.
        attempts: u32,
    },
    /// A dead letter could not be stored. Delivery of the message is retried.
    NoPlace {
        /// Name of the sink.
        sink: String,
        /// File of dead letters.
        file: PathBuf,
        /// Cause.
        why: String,
    },
    /// Entries of an object are unknown. Entries of the object in a mirror stay unchanged.
    Unclear {
        /// Name of the mirror.
        mirror: String,
        /// Reason for the first such object.
        why: String,
        /// Number of such objects.
        objects: usize,
    },
    /// Entries of all objects of a mirror are known again.
    Clear {
        /// Name of the mirror.
        mirror: String,
    },
    /// Several entries of a mirror have the same key and different contents.
    Contested {
        /// Name of the mirror.
        mirror: String,
        /// The keys.
        keys: Vec<String>,
    },
    /// Entry skipped or left unchanged because of the content.
    LeftAlone {
        /// Name of the mirror.
        mirror: String,
        /// The entry.
        entry: String,
        /// Reason.
        why: String,
        /// Number of further entries that were skipped or left unchanged since the last report.
        others: usize,
    },
    /// Removal from a mirror that exceeds the limits and needs approval.
    Asks {
        /// Name of the mirror.
        mirror: String,
        /// The removal.
        ask: ApprovalRequest,
    },
    /// A removal was approved.
    Approved {
        /// Name of the mirror.
        mirror: String,
        /// The removal.
        ask: ApprovalRequest,
    },
    /// An approval is invalid.
    NotApproved {
        /// Name of the mirror.
        mirror: String,
        /// Reason.
        why: String,
    },
    /// The target of a mirror cannot be read or changed. The mirror retries.
    Failing {
        /// Name of the mirror.
        mirror: String,
        /// Cause.
        why: String,
    },
    /// Entries of a mirror were missing after a restart or an external change of the target. The mirror adds the
    /// entries again.
    Lost {
        /// Name of the mirror.
        mirror: String,
        /// Number of missing entries.
        missing: usize,
        /// Change of the target.
        why: String,
    },
    /// The target of a mirror can be read and changed again.
    Works {
        /// Name of the mirror.
        mirror: String,
    },
    /// A sink cannot be opened: a secret or a certificate is unreadable. Opening is retried. Other sinks are not
    /// affected.
    Unopened {
        /// Name of the sink.
        sink: String,
        /// Cause.
        why: String,
    },
    /// A sink was opened after failed attempts.
    Opened {
        /// Name of the sink.
        sink: String,
    },
    /// The credentials of a mirror were replaced, and the mirror uses the new credentials.
    Reopened {
        /// Name of the sink.
        sink: String,
    },
    /// The credentials of a mirror were replaced, but are unusable. The mirror continues with the earlier credentials.
    NotReopened {
        /// Name of the sink.
        sink: String,
        /// Cause.
        why: String,
    },
    /// A long-lived task ended unexpectedly and is restarted.
    TaskEnded {
        /// Name of the task.
        task: String,
        /// Cause.
        why: String,
        /// Delay until the restart.
        delay: Duration,
    },
}

impl fmt::Display for EngineEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { rule, expression, object, why, times } => {
                let often = if *times > 1 { format!(" ({times} times)") } else { String::new() };
                write!(f, "rule {rule}: `{expression}` failed for {object}, the rule does not fire: {why}{often}")
            }
            Self::Anew { of, why } => {
                write!(
                    f,
                    "{of}: cannot restore the checkpoint: {why}; listed again, rules may miss changes since the checkpoint"
                )
            }
            Self::CheckpointUnsupported { of, why } => write!(f, "{of}: {why}"),
            Self::Troubled { sink, why, waiting } => {
                write!(f, "sink {sink}: {why}; retrying, {waiting} messages pending")
            }
            Self::Recovered { sink, waiting } => {
                write!(f, "sink {sink}: messages are accepted again, {waiting} messages pending")
            }
            Self::GivenUp { sink, id, why, attempts } => {
                let again = "`steadfast notify redrive` delivers it again";
                write!(f, "sink {sink}: {id} is a dead letter after {attempts} attempts: {why}; {again}")
            }
            Self::NoPlace { sink, file, why } => {
                let file = file.display();
                write!(
                    f,
                    "sink {sink}: cannot add a dead letter to {file}: {why}; messages are retried until dead letters can be added"
                )
            }
            Self::Unclear { mirror, why, objects } => {
                let more = if *objects > 1 { format!(" (and {} more objects)", objects - 1) } else { String::new() };
                write!(f, "mirror {mirror}: the entries of an object stay unchanged: {}{more}", escaped(why))
            }
            Self::Clear { mirror } => {
                write!(f, "mirror {mirror}: the entries of all objects are valid again")
            }
            Self::LeftAlone { mirror, entry, why, others } => {
                let more = if *others > 0 { format!(" (and {others} more entries)") } else { String::new() };
                write!(f, "mirror {mirror}: the entry {} is skipped: {}{more}", escaped(entry), escaped(why))
            }
            Self::Contested { mirror, keys } => {
                let keys = some(keys);
                let why =
                    "ready entries take precedence, then entries of earlier rules; use a unique key for each entry";
                write!(f, "mirror {mirror}: several entries with different contents for {keys}: {why}")
            }
            Self::Asks { mirror, ask: ApprovalRequest { id, group, names, of } } => {
                let (count, names) = (names.len(), some(names));
                let of_group = if group.is_empty() { String::new() } else { format!(" of the group {group}") };
                let remedy = format!("`steadfast notify approve -c FILE {mirror} {id}` approves the removal");
                write!(
                    f,
                    "mirror {mirror}: removing {count} of {of} entries{of_group} needs approval ({names}); {remedy}"
                )
            }
            Self::Approved { mirror, ask: ApprovalRequest { names, .. } } => {
                let (count, names) = (names.len(), some(names));
                write!(f, "mirror {mirror}: approved the removal of {count} entries ({names})")
            }
            Self::NotApproved { mirror, why } => write!(f, "mirror {mirror}: the approval is invalid: {why}"),
            Self::Failing { mirror, why } => write!(f, "mirror {mirror}: {why}; retrying"),
            Self::Lost { mirror, missing, why } => {
                let (entries, are) = if *missing == 1 { ("entry", "is") } else { ("entries", "are") };
                write!(f, "mirror {mirror}: {missing} {entries} missing at the target {are} added again: {why}")
            }
            Self::Works { mirror } => write!(f, "mirror {mirror}: the target can be read and changed again"),
            Self::Unopened { sink, why } => {
                write!(f, "sink {sink}: cannot be opened: {why}; retried, other sinks are not affected")
            }
            Self::Opened { sink } => write!(f, "sink {sink}: opened"),
            Self::Reopened { sink } => write!(f, "sink {sink}: uses its replaced secret or certificate"),
            Self::NotReopened { sink, why } => {
                write!(
                    f,
                    "sink {sink}: its replaced secret or certificate cannot be used: {why}; continues with the earlier one"
                )
            }
            Self::TaskEnded { task, why, delay } => {
                let delay = delay.as_secs();
                write!(f, "task {task}: ended unexpectedly: {why}; restarted in {delay} s; please report this as a bug")
            }
        }
    }
}

/// Returns the first names, and the number of further names.
fn some(names: &[String]) -> String {
    const TOLD: usize = 5;
    let first = names.iter().take(TOLD).map(|name| escaped(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(TOLD) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Receiver of events.
pub type ReportEvent = dyn Fn(EngineEvent) + Send + Sync;

/// Returns text from a tenant with escaped characters that affect a terminal or a log.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        // Quotes and backslashes are kept, since both are frequent in sentences.
        if letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        {
            escaped.extend(letter.escape_default());
        } else {
            escaped.push(letter);
        }
    }
    escaped
}
