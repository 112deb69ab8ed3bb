//! Backends behind one address, maintained with nftables. The kernel forwards the connections.
//!
//! A mirror owns a whole table: other tables are ignored, and foreign content in the table is removed. The table is
//! written in one transaction, so that no packet is processed with a partly written table. The kernel tracks
//! connections, so that an existing connection keeps its backend even after the backend was removed. Nothing has to be
//! drained.
//!
//! UDP connections have no end. A client that keeps sending from one port keeps its backend until it pauses for
//! `net.netfilter.nf_conntrack_udp_timeout` (30 s by default; 120 s after responses).
//!
//! The table has one rule that selects a backend in turn by weight (`numgen inc`). This rule contains only addresses.
//! So a second chain without traffic has one rule per entry, with the entry's name in a comment.

mod backend;
mod listing;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::bounded_name::{bounded_name, is_valid_name};
use crate::entry::{ActualState, Step, Target};
use crate::step_runner::escape_text;
pub use backend::Backend;
use backend::{MAX_NAME_BYTES, MAX_WEIGHT};
pub use table::TransportProtocol;
use table::{DRIFT_WEIGHT_OFFSET, Table};

/// Returns the name of the entry for `key`, of at most 64 bytes.
///
/// A key of letters, digits, `-`, `_` and `.` that is short enough is returned unchanged. Any other key becomes a
/// readable part, `.-` and 26 digits of its hash. The name is equal in every version and on every machine, and never
/// the name of another key.
pub fn entry_name(key: &str) -> String {
    bounded_name(key, MAX_NAME_BYTES)
}

/// Kernel table that forwards connections from one address to backends.
#[derive(Clone, Debug)]
pub struct Nftables {
    table: Table,
    command: Vec<String>,
}

/// Reason that a table cannot be read or changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NftablesError {
    /// The name is not valid in a ruleset.
    #[error("{0:?} is not a valid name in a ruleset: use letters, digits, `-`, `_` and `.`, at most 64 characters")]
    Name(String),
    /// The kernel does not forward between address families.
    #[error("{name} has the address {address}, which is not of the address family of {front_address}")]
    Family {
        /// The entry.
        name: String,
        /// Address of the entry.
        address: SocketAddr,
        /// Address in front of the backends.
        front_address: SocketAddr,
    },
    /// The kernel cannot forward to the address.
    #[error("{name} cannot have the address {address}: use a unicast address and a port")]
    Address {
        /// The entry.
        name: String,
        /// Address of the entry.
        address: SocketAddr,
    },
    /// The weight is out of range.
    #[error("{name} cannot have the weight {weight}: from 0 to 256")]
    Weight {
        /// The entry.
        name: String,
        /// Requested weight.
        weight: u16,
    },
    /// The tool is missing.
    #[error("cannot run `{command}`: {source}; install nft (on Debian, the package nftables)")]
    Tool {
        /// Command line.
        command: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The tool or the kernel rejected the command.
    #[error("`{command}` failed: {message}{}", remedy(.message))]
    Rejected {
        /// Command line.
        command: String,
        /// Error message of the tool.
        message: String,
    },
    /// The output has an unknown form.
    #[error("the output of `{command}` has an unknown form: {reason}")]
    Unexpected {
        /// Command line.
        command: String,
        /// Unknown part of the output.
        reason: String,
    },
}

debug_as_message!(NftablesError);

/// Returns advice for an error message.
fn remedy(message: &str) -> &'static str {
    if message.contains("not permitted") { "; the program needs CAP_NET_ADMIN in the network namespace" } else { "" }
}

impl Nftables {
    /// Creates the target whose table `steadfast_NAME` forwards TCP connections to `front_address` (see
    /// [`protocol`](Self::protocol)), from other machines and from this one.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid.
    pub fn new(name: &str, front_address: SocketAddr) -> Result<Self, NftablesError> {
        check_name(name)?;
        // A table's name starts with a letter and has no dots or dashes.
        let table = Table {
            name: format!("steadfast_{}", name.replace(['-', '.'], "_")),
            front_address,
            protocol: TransportProtocol::Tcp,
        };
        Ok(Self { table, command: vec!["nft".to_owned()] })
    }

    /// Sets the transport protocol. Defaults to TCP.
    #[must_use]
    pub fn protocol(mut self, protocol: TransportProtocol) -> Self {
        self.table.protocol = protocol;
        self
    }

    /// Sets the command that runs the tool. Defaults to `nft`; may be `sudo nft` or `ip netns exec NAME nft`.
    #[must_use]
    pub fn with_command(self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { command: command.into_iter().map(Into::into).collect(), ..self }
    }

    /// Runs the tool with `arguments` and the standard input `input`, and returns its output.
    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, NftablesError> {
        let words: Vec<_> = self.command.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let [program, rest @ ..] = &*words else { return Ok(String::new()) };
        let command = words.join(" ");
        let tool_error = |source| NftablesError::Tool { command: command.clone(), source };
        let mut child = Command::new(program);
        child.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = child.spawn().map_err(tool_error)?;
        if let Some(mut pipe) = child.stdin.take() {
            // A tool that exits early reports its own error.
            drop(pipe.write_all(input.as_bytes()).await);
        }
        let output = child.wait_with_output().await.map_err(tool_error)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        // The first line has the error, the next lines show the position.
        let message = String::from_utf8_lossy(&output.stderr);
        let message = escape_text(message.lines().next().unwrap_or("no error message").trim());
        Err(NftablesError::Rejected { command, message })
    }

    async fn read_entries(&self) -> Result<BTreeMap<String, Backend>, NftablesError> {
        let family = self.table.family();
        let unexpected = |arguments: &[&str], reason| {
            let words: Vec<_> = self.command.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
            NftablesError::Unexpected { command: words.join(" "), reason }
        };
        let arguments = ["-j", "list", "tables", family];
        let tables = self.run(&arguments, "").await?;
        let exists = listing::has_table(&tables, &self.table.name).map_err(|reason| unexpected(&arguments, reason))?;
        if !exists {
            return Ok(BTreeMap::new());
        }
        let arguments = ["-j", "list", "table", family, &self.table.name];
        let listed = self.run(&arguments, "").await?;
        listing::parse_entries(&listed, &self.table).map_err(|reason| unexpected(&arguments, reason))
    }

    /// Returns the entries after `steps`, without invalid steps, and the first error.
    fn apply_steps(
        &self,
        mut entries: BTreeMap<String, Backend>,
        steps: &[Step<Backend>],
    ) -> (BTreeMap<String, Backend>, Result<(), NftablesError>) {
        let mut first_error = Ok(());
        entries
            .values_mut()
            // `DRIFT_WEIGHT_OFFSET` marks entries in memory only. The rewritten table has the weights without the mark.
            .filter(|backend| backend.weight >= DRIFT_WEIGHT_OFFSET)
            .for_each(|backend| backend.weight -= DRIFT_WEIGHT_OFFSET);
        for step in steps {
            match step {
                Step::Add { name, value } | Step::Change { name, to: value, .. } => match self.check_entry(name, value)
                {
                    Ok(()) => _ = entries.insert(name.clone(), *value),
                    Err(error) => first_error = first_error.and(Err(error)),
                },
                Step::Remove { name, .. } => _ = entries.remove(name),
            }
        }
        (entries, first_error)
    }

    /// Writes the table with `steps` on top of `entries`. The kernel accepts or rejects a table as a whole. So rejected
    /// steps are halved until all valid steps are in the table, and each invalid step has failed alone. Returns the
    /// first error.
    async fn write(&self, entries: BTreeMap<String, Backend>, steps: &[Step<Backend>]) -> Result<(), NftablesError> {
        let (mut entries, mut first_error) = (entries, Ok(()));
        let mut pending = vec![steps];
        while let Some(steps) = pending.pop() {
            let (after, invalid) = self.apply_steps(entries.clone(), steps);
            first_error = first_error.and(invalid);
            match self.run(&["-f", "-"], &self.table.ruleset(&after)).await {
                Ok(_) => entries = after,
                Err(NftablesError::Rejected { .. }) if steps.len() > 1 => {
                    let (front, back) = steps.split_at(steps.len() / 2);
                    pending.extend([back, front]);
                }
                Err(error @ NftablesError::Rejected { .. }) => first_error = first_error.and(Err(error)),
                Err(error) => return first_error.and(Err(error)),
            }
        }
        first_error
    }

    fn check_entry(&self, name: &str, Backend { address, weight }: &Backend) -> Result<(), NftablesError> {
        check_name(name)?;
        let front_address = self.table.front_address;
        if front_address.is_ipv4() != address.is_ipv4() {
            return Err(NftablesError::Family { name: name.to_owned(), address: *address, front_address });
        }
        let is_scoped =
            matches!(address, SocketAddr::V6(address) if address.scope_id() != 0 || address.flowinfo() != 0);
        if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() || is_scoped {
            return Err(NftablesError::Address { name: name.to_owned(), address: *address });
        }
        if *weight > MAX_WEIGHT {
            return Err(NftablesError::Weight { name: name.to_owned(), weight: *weight });
        }
        Ok(())
    }
}

/// Checks the characters of a name. A name with other characters could contain another rule.
fn check_name(name: &str) -> Result<(), NftablesError> {
    if is_valid_name(name, MAX_NAME_BYTES) { Ok(()) } else { Err(NftablesError::Name(name.to_owned())) }
}

impl Target for Nftables {
    type Value = Backend;
    type Error = NftablesError;

    async fn read(&self) -> Result<ActualState<Backend>, NftablesError> {
        // The mirror owns the whole table, so no entry is foreign. The kernel tracks connections, so no entry is busy.
        Ok(ActualState { own: self.read_entries().await?, others: BTreeSet::new(), busy: BTreeSet::new() })
    }

    async fn apply(&self, steps: &[Step<Backend>]) -> Result<(), NftablesError> {
        // The table is read again, because it is written as a whole and must include entries that appeared since the
        // plan.
        self.write(self.read_entries().await?, steps).await
    }

    /// Removes entries that are invalid in the table.
    fn validate(&self, desired: &mut BTreeMap<String, Backend>) -> BTreeMap<String, String> {
        let invalid = desired.iter().filter_map(|(name, backend)| {
            let error = self.check_entry(name, backend).err()?;
            Some((name.clone(), error.to_string()))
        });
        let invalid: BTreeMap<_, _> = invalid.collect();
        desired.retain(|name, _| !invalid.contains_key(name));
        invalid
    }

    fn describe(&self, found: &ActualState<Backend>, steps: &[Step<Backend>]) -> Vec<String> {
        let (entries, invalid) = self.apply_steps(found.own.clone(), steps);
        let comment = invalid.err().map(|error| format!("# {error}"));
        comment.into_iter().chain(self.table.ruleset(&entries).lines().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests;
