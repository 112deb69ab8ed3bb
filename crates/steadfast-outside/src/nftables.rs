//! The backends behind one address, by nftables: what comes to it is sent on by the kernel.
//!
//! A mirror has a table of its own, which is all its own: nothing else in the ruleset is looked at, and what is in the table and is not
//! the mirror's is taken away. It is written as a whole, in one transaction, so that no packet meets half of it. A connection that there is
//! goes on to the backend that it has, also when that is taken out: the kernel tracks it. So nothing has to be drained.
//!
//! That holds for UDP too, where the kernel has no end of a connection to see: a client that keeps sending from one port goes on to its backend until it
//! pauses for as long as `net.netfilter.nf_conntrack_udp_timeout` says (30 s by default; 120 s after responses).
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
use crate::fitted::{fits, fitted};
pub use backend::Backend;
pub use table::Protocol;
use table::{ASKEW, Table};

/// Maximum length of the name of an entry: with its address it must fit into a comment of 128 bytes.
const MAX_NAME_BYTES: usize = 64;

/// Returns the name of the entry for `key`, of at most 64 bytes.
///
/// A key of letters, digits, `-`, `_` and `.` that is short enough is returned unchanged. Any other key becomes a readable part, `.-` and
/// 26 digits of its hash: the same name in every version and on every machine, and never the name of another key.
pub fn entry_name(key: &str) -> String {
    fitted(key, MAX_NAME_BYTES)
}

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
    /// The kernel cannot send packets there.
    #[error("{name} cannot be at {address}; it needs an address of one machine, and a port")]
    Address {
        /// The entry.
        name: String,
        /// Its address.
        address: SocketAddr,
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
    /// What comes to `before` over TCP (or another [`protocol`](Self::protocol)), from elsewhere or from this machine, is sent on by the table `steadfast_NAME`.
    ///
    /// # Errors
    ///
    /// Where the name can be none.
    pub fn new(name: &str, before: SocketAddr) -> Result<Self, NftablesError> {
        check(name)?;
        // A table's name begins with a letter and has no dots or dashes.
        let table =
            Table { name: format!("steadfast_{}", name.replace(['-', '.'], "_")), before, protocol: Protocol::Tcp };
        Ok(Self { table, command: vec!["nft".to_owned()] })
    }

    /// Sets the transport protocol. Defaults to TCP.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.table.protocol = protocol;
        self
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

    /// Returns the entries after `steps`. A step that cannot be carried out is left out; the error is that of the first one.
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

    /// Writes the table with `steps` on top of `entries`. The kernel accepts a table as a whole or not at all, so rejected steps are halved
    /// until those that it accepts are in the table, and each other one has failed alone. Returns the first error.
    async fn write(&self, entries: BTreeMap<String, Backend>, steps: &[Step<Backend>]) -> Result<(), NftablesError> {
        let (mut entries, mut first) = (entries, Ok(()));
        let mut pending = vec![steps];
        while let Some(steps) = pending.pop() {
            let (after, wrong) = self.after(entries.clone(), steps);
            first = first.and(wrong);
            match self.run(&["-f", "-"], &self.table.written(&after)).await {
                Ok(_) => entries = after,
                Err(NftablesError::Refused { .. }) if steps.len() > 1 => {
                    let (front, back) = steps.split_at(steps.len() / 2);
                    pending.extend([back, front]);
                }
                Err(error @ NftablesError::Refused { .. }) => first = first.and(Err(error)),
                Err(error) => return first.and(Err(error)),
            }
        }
        first
    }

    fn check(&self, name: &str, Backend { address, weight }: &Backend) -> Result<(), NftablesError> {
        check(name)?;
        let before = self.table.before;
        if before.is_ipv4() != address.is_ipv4() {
            return Err(NftablesError::Family { name: name.to_owned(), address: *address, before });
        }
        let is_scoped =
            matches!(address, SocketAddr::V6(address) if address.scope_id() != 0 || address.flowinfo() != 0);
        if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() || is_scoped {
            return Err(NftablesError::Address { name: name.to_owned(), address: *address });
        }
        if *weight > 256 {
            return Err(NftablesError::Weight { name: name.to_owned(), weight: *weight });
        }
        Ok(())
    }
}

/// A name with other characters could be another rule.
fn check(name: &str) -> Result<(), NftablesError> {
    if fits(name, MAX_NAME_BYTES) { Ok(()) } else { Err(NftablesError::Name(name.to_owned())) }
}

impl Target for Nftables {
    type Value = Backend;
    type Error = NftablesError;

    async fn look(&self) -> Result<Found<Backend>, NftablesError> {
        // All of the table is the mirror's, and whom a connection is tracked to is the kernel's business.
        Ok(Found { own: self.entries().await?, others: BTreeSet::new(), busy: BTreeSet::new() })
    }

    async fn act(&self, steps: &[Step<Backend>]) -> Result<(), NftablesError> {
        self.write(self.entries().await?, steps).await
    }

    /// Removes entries that the table cannot have.
    fn settle(&self, wanted: &mut BTreeMap<String, Backend>) -> BTreeMap<String, String> {
        let bad = wanted.iter().filter_map(|(name, backend)| {
            let error = self.check(name, backend).err()?;
            Some((name.clone(), error.to_string()))
        });
        let bad: BTreeMap<_, _> = bad.collect();
        wanted.retain(|name, _| !bad.contains_key(name));
        bad
    }

    fn describe(&self, found: &Found<Backend>, steps: &[Step<Backend>]) -> Vec<String> {
        let (entries, wrong) = self.after(found.own.clone(), steps);
        let wrong = wrong.err().map(|error| format!("# {error}"));
        wrong.into_iter().chain(self.table.written(&entries).lines().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests;
