//! The backends behind one address, by nftables: what comes to it is sent on by the kernel.
//!
//! A mirror has a table of its own, which is all its own: nothing else in the ruleset is looked at, and what is in the table and is not
//! the mirror's is taken away. It is written as a whole, in one transaction, so that no packet meets half of it. A connection that there is
//! goes on to the backend that it has, also when that is taken out: the kernel tracks it. So nothing has to be drained.
//!
//! The table has one rule that chooses, by turns according to the weights (`numgen inc`), and a chain that nothing passes, with a rule
//! for each entry whose comment says who it is: the rule that chooses knows only addresses.

mod backend;
mod listing;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::entry::{Found, Step, Target};
pub use backend::Backend;
use table::{ASKEW, Table};

/// A table of the kernel's that sends what comes to one address on to others.
#[derive(Clone, Debug)]
pub struct Nftables {
    table: Table,
    command: Vec<String>,
}

/// Why a table cannot be seen or changed.
#[derive(Debug, thiserror::Error)]
pub enum NftablesError {
    /// Such a name has no place in a ruleset.
    #[error(
        "{0:?} can be no name in a ruleset: it may have letters, digits, `-`, `_` and `.` in it, and up to 64 of them"
    )]
    Name(String),
    /// The kernel does not send from one family to the other.
    #[error("{name} is at {address}, which is not of the family of {before}")]
    Family {
        /// The entry.
        name: String,
        /// Where it is.
        address: SocketAddr,
        /// What it would be behind.
        before: SocketAddr,
    },
    /// No such weight is provided for.
    #[error("{name} cannot have the weight {weight}: from 0 to 256")]
    Weight {
        /// The entry.
        name: String,
        /// What it was to be given.
        weight: u16,
    },
    /// The tool is not there.
    #[error("`{command}` cannot be run: {source}; Debian has it in the package nftables")]
    Tool {
        /// What was to be run.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The tool, or the kernel behind it, did not do it.
    #[error("`{command}` failed: {answer}{}", remedy(.answer))]
    Refused {
        /// What was run.
        command: String,
        /// What it said.
        answer: String,
    },
    /// It lists what this was not written for.
    #[error("`{command}` answers in an unknown form: {why}")]
    Unexpected {
        /// What was run.
        command: String,
        /// What is unknown about it.
        why: String,
    },
}

/// What to do about an answer.
fn remedy(answer: &str) -> &'static str {
    if answer.contains("not permitted") { "; it takes CAP_NET_ADMIN in the network namespace" } else { "" }
}

impl Nftables {
    /// What comes to `before` over TCP, from elsewhere or from this machine, is sent on by the table `steadfast_NAME`.
    ///
    /// # Errors
    ///
    /// Where the name can be none.
    pub fn new(name: &str, before: SocketAddr) -> Result<Self, NftablesError> {
        check(name)?;
        // A table's name begins with a letter and has no dots or dashes.
        let table = Table { name: format!("steadfast_{}", name.replace(['-', '.'], "_")), before };
        Ok(Self { table, command: vec!["nft".to_owned()] })
    }

    /// Has the tool run by this `command` in place of `nft` alone: `sudo nft`, or `ip netns exec NAME nft`.
    #[must_use]
    pub fn by(self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), ..self }
    }

    /// What the tool prints when it is run with `arguments` and told `input`.
    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, NftablesError> {
        let words: Vec<_> = self.command.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let [program, rest @ ..] = &*words else { return Ok(String::new()) };
        let command = words.join(" ");
        let failed = |source| NftablesError::Tool { command: command.clone(), source };
        let mut child = Command::new(program);
        child.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = child.spawn().map_err(failed)?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that does not listen says why on its way out.
            drop(pipe.write_all(input.as_bytes()).await);
        }
        let output = child.wait_with_output().await.map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        // The first line says what, the next ones show where.
        let answer = String::from_utf8_lossy(&output.stderr);
        let answer = answer.lines().next().unwrap_or("it said nothing").trim().to_owned();
        Err(NftablesError::Refused { command, answer })
    }

    async fn entries(&self) -> Result<BTreeMap<String, Backend>, NftablesError> {
        let family = self.table.family();
        let unexpected = |arguments: &[&str], why| {
            let words: Vec<_> = self.command.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
            NftablesError::Unexpected { command: words.join(" "), why }
        };
        let arguments = ["-j", "list", "tables", family];
        let tables = self.run(&arguments, "").await?;
        let is_there = listing::has_table(&tables, &self.table.name).map_err(|why| unexpected(&arguments, why))?;
        if !is_there {
            return Ok(BTreeMap::new());
        }
        let arguments = ["-j", "list", "table", family, &self.table.name];
        let listed = self.run(&arguments, "").await?;
        listing::entries(&listed, &self.table).map_err(|why| unexpected(&arguments, why))
    }

    /// What is there once `steps` are done.
    fn after(
        &self,
        mut entries: BTreeMap<String, Backend>,
        steps: &[Step<Backend>],
    ) -> (BTreeMap<String, Backend>, Result<(), NftablesError>) {
        let mut first = Ok(());
        entries.values_mut().filter(|backend| backend.weight >= ASKEW).for_each(|backend| backend.weight -= ASKEW);
        for step in steps {
            match step {
                Step::Add { name, value } | Step::Change { name, to: value, .. } => match self.check(name, value) {
                    Ok(()) => _ = entries.insert(name.clone(), *value),
                    Err(error) => first = first.and(Err(error)),
                },
                Step::Remove { name, .. } => _ = entries.remove(name),
            }
        }
        (entries, first)
    }

    fn check(&self, name: &str, Backend { address, weight }: &Backend) -> Result<(), NftablesError> {
        check(name)?;
        let before = self.table.before;
        if before.is_ipv4() != address.is_ipv4() {
            return Err(NftablesError::Family { name: name.to_owned(), address: *address, before });
        }
        if *weight > 256 {
            return Err(NftablesError::Weight { name: name.to_owned(), weight: *weight });
        }
        Ok(())
    }
}

/// What is no such name could be another rule.
fn check(name: &str) -> Result<(), NftablesError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(NftablesError::Name(name.to_owned()))
    }
}

impl Target for Nftables {
    type Value = Backend;
    type Error = NftablesError;

    async fn look(&self) -> Result<Found<Backend>, NftablesError> {
        // All of the table is the mirror's, and whom a connection is tracked to is the kernel's business.
        Ok(Found { own: self.entries().await?, others: BTreeSet::new(), busy: BTreeSet::new() })
    }

    async fn act(&self, steps: &[Step<Backend>]) -> Result<(), NftablesError> {
        let (entries, wrong) = self.after(self.entries().await?, steps);
        self.run(&["-f", "-"], &self.table.written(&entries)).await?;
        wrong
    }

    fn describe(&self, found: &Found<Backend>, steps: &[Step<Backend>]) -> Vec<String> {
        let (entries, wrong) = self.after(found.own.clone(), steps);
        let wrong = wrong.err().map(|error| format!("# {error}"));
        wrong.into_iter().chain(self.table.written(&entries).lines().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests;
