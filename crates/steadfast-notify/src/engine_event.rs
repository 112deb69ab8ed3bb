//! Events of an engine for the operator.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_targets::ApprovalRequest;

/// Event for the operator of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A rule could not be evaluated for an object. The rule does not fire.
    RuleFailed {
        /// Name of the rule.
        rule: String,
        /// Failed expression.
        expression: &'static str,
        /// The object.
        object: String,
        /// Cause.
        reason: String,
        /// Number of failures of this rule. Reported if this number, or the number of the rule's failures in the
        /// namespace of the object, is a power of two.
        failures: u64,
    },
    /// The checkpoint of an earlier run is unusable. Rules may miss changes since then.
    CheckpointDiscarded {
        /// Resource and cluster.
        source: String,
        /// Cause.
        reason: String,
    },
    /// A cache, or pending changes, cannot be written to the state folder.
    CheckpointNotWritten {
        /// Resource and cluster.
        source: String,
        /// Cause.
        reason: String,
    },
    /// A sink accepts no messages. Delivery is retried.
    SinkFailing {
        /// Name of the sink.
        sink: String,
        /// Cause.
        reason: String,
        /// Number of pending messages.
        pending: usize,
    },
    /// A sink accepts messages again.
    SinkRecovered {
        /// Name of the sink.
        sink: String,
        /// Number of pending messages.
        pending: usize,
    },
    /// A message became a dead letter.
    DeadLettered {
        /// Name of the sink.
        sink: String,
        /// ID of the message.
        id: String,
        /// Cause.
        reason: String,
        /// Number of attempts.
        attempts: u32,
    },
    /// A dead letter could not be stored. Delivery of the message is retried.
    DeadLetterNotStored {
        /// Name of the sink.
        sink: String,
        /// File of dead letters.
        file: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The entries of an object cannot be determined. The entries of this object in a mirror stay unchanged.
    EntriesUnknown {
        /// Name of the mirror.
        mirror: String,
        /// Reason for the first such object.
        reason: String,
        /// Number of such objects.
        objects: usize,
    },
    /// The entries of all objects of a mirror can be determined again.
    EntriesKnown {
        /// Name of the mirror.
        mirror: String,
    },
    /// Several entries of a mirror have the same key and different contents.
    ConflictingEntries {
        /// Name of the mirror.
        mirror: String,
        /// The keys.
        keys: Vec<String>,
    },
    /// An entry is skipped or left unchanged because of its content.
    EntrySkipped {
        /// Name of the mirror.
        mirror: String,
        /// The entry.
        entry: String,
        /// Reason.
        reason: String,
        /// Number of further entries that were skipped or left unchanged since the last report.
        skipped_since_report: usize,
    },
    /// Removal from a mirror that exceeds the limits and needs approval.
    ApprovalRequired {
        /// Name of the mirror.
        mirror: String,
        /// The removal.
        request: ApprovalRequest,
    },
    /// A removal was approved.
    Approved {
        /// Name of the mirror.
        mirror: String,
        /// The removal.
        request: ApprovalRequest,
    },
    /// An approval is invalid.
    InvalidApproval {
        /// Name of the mirror.
        mirror: String,
        /// Reason.
        reason: String,
    },
    /// The target of a mirror cannot be read or changed. The mirror retries.
    TargetFailing {
        /// Name of the mirror.
        mirror: String,
        /// Cause.
        reason: String,
    },
    /// Entries of a mirror were missing after a restart or an external change of the target. The mirror adds the
    /// entries again.
    EntriesLost {
        /// Name of the mirror.
        mirror: String,
        /// Number of missing entries.
        missing: usize,
        /// Restart or change of the target.
        reason: String,
    },
    /// The target of a mirror can be read and changed again.
    TargetRecovered {
        /// Name of the mirror.
        mirror: String,
    },
    /// A sink cannot be opened: a secret or a certificate is unreadable. Opening is retried. Other sinks are not
    /// affected.
    SinkNotOpened {
        /// Name of the sink.
        sink: String,
        /// Cause.
        reason: String,
    },
    /// A sink was opened after failed attempts.
    SinkOpened {
        /// Name of the sink.
        sink: String,
    },
    /// The credentials of a mirror were replaced, and the mirror uses the new credentials.
    CredentialsReplaced {
        /// Name of the sink.
        sink: String,
    },
    /// The credentials of a mirror were replaced, but are unusable. The mirror continues with the earlier credentials.
    CredentialsUnusable {
        /// Name of the sink.
        sink: String,
        /// Cause.
        reason: String,
    },
    /// A long-lived task ended unexpectedly and is restarted.
    TaskEnded {
        /// Name of the task.
        task: String,
        /// Cause.
        reason: String,
        /// Delay until the restart.
        delay: Duration,
    },
}

impl fmt::Display for EngineEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuleFailed { rule, expression, object, reason, failures } => {
                let times = if *failures > 1 { format!(" ({failures} times)") } else { String::new() };
                let (object, reason) = (shown(object), shown(reason));
                write!(f, "rule {rule}: `{expression}` failed for {object}, the rule does not fire: {reason}{times}")
            }
            Self::CheckpointDiscarded { source, reason } => {
                write!(
                    f,
                    "{source}: cannot restore the checkpoint: {reason}; listed again, rules may miss changes since the checkpoint"
                )
            }
            Self::CheckpointNotWritten { source, reason } => write!(f, "{source}: {reason}"),
            Self::SinkFailing { sink, reason, pending } => {
                write!(f, "sink {sink}: {}; retrying, {pending} messages pending", shown(reason))
            }
            Self::SinkRecovered { sink, pending } => {
                write!(f, "sink {sink}: messages are accepted again, {pending} messages pending")
            }
            Self::DeadLettered { sink, id, reason, attempts } => {
                let (id, reason, remedy) = (shown(id), shown(reason), "`steadfast notify redrive` delivers it again");
                write!(f, "sink {sink}: {id} is a dead letter after {attempts} attempts: {reason}; {remedy}")
            }
            Self::DeadLetterNotStored { sink, file, reason } => {
                let file = file.display();
                write!(
                    f,
                    "sink {sink}: cannot add a dead letter to {file}: {reason}; messages are retried until dead letters can be added"
                )
            }
            Self::EntriesUnknown { mirror, reason, objects } => {
                let more = if *objects > 1 { format!(" (and {} more objects)", objects - 1) } else { String::new() };
                write!(f, "mirror {mirror}: the entries of an object stay unchanged: {}{more}", shown(reason))
            }
            Self::EntriesKnown { mirror } => {
                write!(f, "mirror {mirror}: the entries of all objects are valid again")
            }
            Self::EntrySkipped { mirror, entry, reason, skipped_since_report: others } => {
                let more = if *others > 0 { format!(" (and {others} more entries)") } else { String::new() };
                write!(f, "mirror {mirror}: the entry {} is skipped: {}{more}", shown(entry), shown(reason))
            }
            Self::ConflictingEntries { mirror, keys } => {
                let keys = first_names(keys);
                let reason =
                    "ready entries take precedence, then entries of earlier rules; use a unique key for each entry";
                write!(f, "mirror {mirror}: several entries with different contents for {keys}: {reason}")
            }
            Self::ApprovalRequired { mirror, request: ApprovalRequest { id, group, names, serving } } => {
                let (count, names) = (names.len(), first_names(names));
                let of_group = if group.is_empty() { String::new() } else { format!(" of the group {}", shown(group)) };
                let remedy = format!("`steadfast notify approve -c FILE {mirror} {id}` approves the removal");
                write!(
                    f,
                    "mirror {mirror}: removing {count} of {serving} entries{of_group} needs approval ({names}); {remedy}"
                )
            }
            Self::Approved { mirror, request: ApprovalRequest { names, .. } } => {
                let (count, names) = (names.len(), first_names(names));
                write!(f, "mirror {mirror}: approved the removal of {count} entries ({names})")
            }
            Self::InvalidApproval { mirror, reason } => write!(f, "mirror {mirror}: the approval is invalid: {reason}"),
            Self::TargetFailing { mirror, reason } => write!(f, "mirror {mirror}: {}; retrying", shown(reason)),
            Self::EntriesLost { mirror, missing, reason } => {
                let (entries, are) = if *missing == 1 { ("entry", "is") } else { ("entries", "are") };
                write!(f, "mirror {mirror}: {missing} {entries} missing at the target {are} added again: {reason}")
            }
            Self::TargetRecovered { mirror } => write!(f, "mirror {mirror}: the target can be read and changed again"),
            Self::SinkNotOpened { sink, reason } => {
                write!(f, "sink {sink}: cannot be opened: {reason}; retried, other sinks are not affected")
            }
            Self::SinkOpened { sink } => write!(f, "sink {sink}: opened"),
            Self::CredentialsReplaced { sink } => write!(f, "sink {sink}: uses its replaced secret or certificate"),
            Self::CredentialsUnusable { sink, reason } => {
                write!(
                    f,
                    "sink {sink}: its replaced secret or certificate cannot be used: {reason}; continues with the earlier one"
                )
            }
            Self::TaskEnded { task, reason, delay } => {
                let (reason, delay) = (shown(reason), delay.as_secs());
                write!(
                    f,
                    "task {task}: ended unexpectedly: {reason}; restarted in {delay} s; please report this as a bug"
                )
            }
        }
    }
}

/// Returns the first names, and the number of further names.
fn first_names(names: &[String]) -> String {
    const MAX_LISTED: usize = 5;
    let first = names.iter().take(MAX_LISTED).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_LISTED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Maximum length of a text from a tenant or a receiver in a line, in characters.
const MAX_SHOWN_CHARS: usize = 1_000;

/// Returns `text` from a tenant or a receiver, [escaped] and bounded.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => escaped(&text[..end]) + "…",
        None => escaped(text),
    }
}

/// Receiver of events.
pub type EventCallback = dyn Fn(EngineEvent) + Send + Sync;

/// Returns true if a terminal or a log may interpret `character`: control characters, line separators, invisible
/// characters, and characters that change the direction of text.
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Returns `text` from a tenant. Characters that affect a terminal or a log ([`is_unsafe`]) are escaped.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        // Quotes and backslashes are kept, since both are frequent in sentences.
        if is_unsafe(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_tenants_is_escaped_and_bounded() {
        let object = "roles a\u{1b}[2J\nsink log: messages are accepted again of east".to_owned();
        let (rule, reason) = ("r".to_owned(), "x".repeat(1 << 20));
        let failed = EngineEvent::RuleFailed { rule, expression: "object", object, reason, failures: 1 }.to_string();
        assert!(!failed.chars().any(is_unsafe) && failed.contains("a\\u{1b}[2J\\nsink"), "{failed}");
        assert!(failed.chars().count() < 1_200);
        let hostile = || "\u{202e}\r\n".to_owned();
        let (sink, pending) = (|| "log".to_owned(), 1);
        for event in [
            EngineEvent::SinkFailing { sink: sink(), reason: hostile(), pending },
            EngineEvent::DeadLettered { sink: sink(), id: hostile(), reason: hostile(), attempts: 1 },
            EngineEvent::TargetFailing { mirror: sink(), reason: hostile() },
            EngineEvent::TaskEnded { task: sink(), reason: hostile(), delay: Duration::ZERO },
        ] {
            assert!(!event.to_string().chars().any(is_unsafe), "{event}");
        }
        let long = || "\u{61c}".repeat(1 << 20);
        let (id, group, names, skipped_since_report) = (sink(), long(), vec![long()], 0);
        for event in [
            EngineEvent::EntriesUnknown { mirror: sink(), reason: long(), objects: 1 },
            EngineEvent::EntrySkipped { mirror: sink(), entry: long(), reason: long(), skipped_since_report },
            EngineEvent::ConflictingEntries { mirror: sink(), keys: vec![long()] },
            EngineEvent::ApprovalRequired { mirror: sink(), request: ApprovalRequest { id, group, names, serving: 1 } },
        ] {
            let text = event.to_string();
            assert!(!text.contains(is_unsafe) && text.len() < 1 << 16, "{} bytes", text.len());
        }
    }
}
