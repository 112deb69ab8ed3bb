//! What an engine tells beside what it delivers.

use std::fmt;
use std::path::PathBuf;

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
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { rule, expression, object, why, times } => {
                let often = if *times > 1 { format!(" ({times} times)") } else { String::new() };
                write!(f, "rule {rule}: `{expression}` failed for {object}, so that it does not fire: {why}{often}")
            }
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
        }
    }
}

/// What is told notices.
pub type Tell = dyn Fn(Notice) + Send + Sync;
