//! What an engine tells beside what it delivers.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_outside::Ask;

/// Something that whoever runs the program should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A rule could not be evaluated for an object; it counts as one that does not fire.
    Failed {
        /// Which rule.
        rule: String,
        /// Which of its expressions.
        expression: &'static str,
        /// For which object.
        object: String,
        /// Why.
        why: String,
        /// How often that has happened to this rule: it is told the first time, the second, the fourth and so on.
        times: u64,
    },
    /// What an earlier life of the program has kept is of no use: what has changed since is told to no rule.
    Anew {
        /// Of what: the resource and the cluster.
        of: String,
        /// Why.
        why: String,
    },
    /// What is held, or owed to rules, cannot be written to the state folder.
    CheckpointUnsupported {
        /// Of what: the resource and the cluster.
        of: String,
        /// Why.
        why: String,
    },
    /// A sink takes nothing; it is tried on.
    Troubled {
        /// Which sink.
        sink: String,
        /// Why.
        why: String,
        /// How many messages wait for it.
        waiting: usize,
    },
    /// A sink takes messages again.
    Recovered {
        /// Which sink.
        sink: String,
        /// How many messages wait for it.
        waiting: usize,
    },
    /// A message is among the dead letters.
    GivenUp {
        /// For which sink it was.
        sink: String,
        /// Which message.
        id: String,
        /// Why.
        why: String,
        /// After how many attempts.
        attempts: u32,
    },
    /// A message is to be given up, and cannot be kept as a dead letter: it is tried on.
    NoPlace {
        /// For which sink it was.
        sink: String,
        /// Where it would be kept.
        file: PathBuf,
        /// Why it cannot.
        why: String,
    },
    /// The entries of an object are not known: those that a mirror has of it stay unchanged.
    Unclear {
        /// Which mirror.
        mirror: String,
        /// Why, of the first of them.
        why: String,
        /// Of how many objects that is so.
        objects: usize,
    },
    /// Of all objects it is known what they mean to a mirror.
    Clear {
        /// Which mirror.
        mirror: String,
    },
    /// Several entries of a mirror have the same key, and say different things.
    Contested {
        /// Which mirror.
        mirror: String,
        /// Those keys.
        keys: Vec<String>,
    },
    /// An entry is left out or unchanged because of what it is, and why.
    LeftAlone {
        /// Which mirror.
        mirror: String,
        /// The entry.
        entry: String,
        /// Why.
        why: String,
        /// How many others are left alone since.
        others: usize,
    },
    /// More is to be taken out of a mirror at once than is granted.
    Asks {
        /// Which mirror.
        mirror: String,
        /// What is to be approved of.
        ask: Ask,
    },
    /// Somebody has approved of what a mirror asked for.
    Approved {
        /// Which mirror.
        mirror: String,
        /// What was approved of.
        ask: Ask,
    },
    /// An approval is none.
    NotApproved {
        /// Which mirror.
        mirror: String,
        /// Why.
        why: String,
    },
    /// A mirror cannot be seen or changed; it is tried on.
    Failing {
        /// Which mirror.
        mirror: String,
        /// Why.
        why: String,
    },
    /// Entries of a mirror were missing after its target was restarted or changed by another hand. They are added again.
    Lost {
        /// The mirror.
        mirror: String,
        /// Number of missing entries.
        missing: usize,
        /// What happened to the target.
        why: String,
    },
    /// A mirror can be seen and changed again.
    Works {
        /// Which mirror.
        mirror: String,
    },
    /// A sink cannot be opened: a secret or a certificate cannot be read. It is retried, and everything else works.
    Unopened {
        /// Which sink.
        sink: String,
        /// Why.
        why: String,
    },
    /// A sink that could not be opened before is open.
    Opened {
        /// Which sink.
        sink: String,
    },
    /// A mirror's secret or certificate was replaced, and the mirror uses the new one.
    Reopened {
        /// Which sink.
        sink: String,
    },
    /// A mirror's secret or certificate was replaced, and cannot be used. The mirror continues with the earlier one.
    NotReopened {
        /// Which sink.
        sink: String,
        /// Why.
        why: String,
    },
    /// A long-lived task ended unexpectedly and is restarted.
    TaskEnded {
        /// Which task.
        task: String,
        /// Why.
        why: String,
        /// Delay until its restart.
        delay: Duration,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { rule, expression, object, why, times } => {
                let often = if *times > 1 { format!(" ({times} times)") } else { String::new() };
                write!(f, "rule {rule}: `{expression}` failed for {object}, so that it does not fire: {why}{often}")
            }
            Self::Anew { of, why } => {
                write!(
                    f,
                    "{of}: {why}; all is listed anew, and what has changed since it was written may be missed by rules"
                )
            }
            Self::CheckpointUnsupported { of, why } => write!(f, "{of}: {why}"),
            Self::Troubled { sink, why, waiting } => {
                write!(f, "sink {sink}: {why}; it is tried on, {waiting} waiting")
            }
            Self::Recovered { sink, waiting } => write!(f, "sink {sink}: it takes messages again, {waiting} waiting"),
            Self::GivenUp { sink, id, why, attempts } => {
                let again = "`steadfast notify redrive` tries it again";
                write!(f, "sink {sink}: {id} is a dead letter after {attempts} attempts: {why}; {again}")
            }
            Self::NoPlace { sink, file, why } => {
                let file = file.display();
                write!(
                    f,
                    "sink {sink}: no dead letter can be added to {file}: {why}; messages are tried on until one can"
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
                write!(f, "mirror {mirror}: the entry {} is left alone: {}{more}", escaped(entry), escaped(why))
            }
            Self::Contested { mirror, keys } => {
                let keys = some(keys);
                let why =
                    "the one that is ready comes first, then that of the earlier rule; give each a key of its own";
                write!(f, "mirror {mirror}: several say different things of {keys}: {why}")
            }
            Self::Asks { mirror, ask: Ask { id, group, names, of } } => {
                let (count, names) = (names.len(), some(names));
                let of_group = if group.is_empty() { String::new() } else { format!(" of the group {group}") };
                let remedy = format!("`steadfast notify approve -c FILE {mirror} {id}` approves the removal");
                write!(f, "mirror {mirror}: {count} of {of} entries{of_group} would go ({names}) and stay; {remedy}")
            }
            Self::Approved { mirror, ask: Ask { names, .. } } => {
                let (count, names) = (names.len(), some(names));
                write!(f, "mirror {mirror}: it was approved of taking out {count} ({names})")
            }
            Self::NotApproved { mirror, why } => write!(f, "mirror {mirror}: an approval came to nothing: {why}"),
            Self::Failing { mirror, why } => write!(f, "mirror {mirror}: {why}; it is tried on"),
            Self::Lost { mirror, missing, why } => {
                let (entries, are) = if *missing == 1 { ("entry", "is") } else { ("entries", "are") };
                write!(f, "mirror {mirror}: {missing} {entries} missing at the target {are} added again: {why}")
            }
            Self::Works { mirror } => write!(f, "mirror {mirror}: it can be seen and changed again"),
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

/// The first of many names.
fn some(names: &[String]) -> String {
    const TOLD: usize = 5;
    let first = names.iter().take(TOLD).map(|name| escaped(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(TOLD) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What is told notices.
pub type Tell = dyn Fn(Notice) + Send + Sync;

/// Text of a tenant, without characters that a terminal or a log would act on.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        // Quotes and backslashes of a sentence stay as they are.
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
