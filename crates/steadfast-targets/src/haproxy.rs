//! Servers of a HAProxy backend, added to and removed from traffic through the runtime socket, without a reload.
//!
//! The mirror owns the servers with its name prefix, and changes no other server. A reload or a restart of HAProxy
//! removes the servers of the mirror. The process at the socket is polled twice a second, so that they are added
//! again within 2 s.
//!
//! Requires HAProxy 2.5 or newer. These versions can add servers to a backend with a dynamic balancing algorithm
//! ([management guide, 9.3](https://docs.haproxy.org/2.6/management.html#9.3)).

mod error;
mod options;
mod process;
mod responses;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::bounded_name::{MIN_NAME_BYTES, bounded_name, is_valid_name};
use crate::entry::{ActualState, EntryValue, Step, Target};
use crate::step_runner::{SlowEntries, StepFailure, StepRunner, escape_text};
pub use error::HaproxyError;
pub use options::ServerOptions;
use process::{Process, ProcessObserver};
use responses::{ListedServer, ParseError};

/// Maximum length of the name of a server.
const MAX_NAME_BYTES: usize = 128;

/// Maximum length of a prefix, so that the rest of a name has enough bytes for a hash.
const MAX_PREFIX_BYTES: usize = 96;

const _: () = assert!(MAX_PREFIX_BYTES + MIN_NAME_BYTES <= MAX_NAME_BYTES);

/// Bounds of one run of changes. A run lasts at most 8 s, so that it ends within the mirror's deadline of 30 s.
/// HAProxy accepts ten connections at its socket by default (`stats maxconn`), and other tools and mirrors need some
/// of them.
const STEP_RUNNER: StepRunner = StepRunner {
    max_concurrent: 4,
    step_timeout: Duration::from_secs(2),
    start_within: Duration::from_secs(6),
    max_failures: 4,
};

/// Deadline of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the polls that detect a restart.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Deadline of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// A server behind a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address of the server.
    pub address: SocketAddr,
    /// Share of the traffic relative to the other servers: 1 to 256, or 0 for no new connections.
    pub weight: u16,
}

impl EntryValue for Server {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self { weight: 0, ..*self })
    }

    fn locations(&self, name: &str) -> Vec<String> {
        vec![name.to_owned(), self.address.to_string()]
    }
}

/// Servers of one backend that belong to a mirror.
#[derive(Clone, Debug)]
pub struct Haproxy {
    socket: PathBuf,
    backend: String,
    prefix: String,
    options: ServerOptions,
    process_observer: Arc<ProcessObserver>,
    slow_entries: Arc<SlowEntries>,
}

/// Returns the name of the entry for `key`. `prefix` followed by this name is a valid server name, of at most 128 bytes
/// in total.
///
/// A key of letters, digits, `-`, `_` and `.` that is short enough is returned unchanged. Any other key becomes a
/// readable part, `.-` and 26 digits of its hash: `c1/shop/web-1` becomes `c1.shop.web-1.-f6lzdbw3o7n4nohw45h4zffdjo`.
/// The name is equal in every version and on every machine, and never the name of another key.
pub fn entry_name(prefix: &str, key: &str) -> String {
    bounded_name(key, MAX_NAME_BYTES.saturating_sub(prefix.len()).max(MIN_NAME_BYTES))
}

impl Haproxy {
    /// Creates the target for the servers of `backend` whose names start with `prefix`, in the HAProxy with the
    /// runtime socket `socket`.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is invalid.
    pub fn new(socket: &Path, backend: &str, prefix: &str) -> Result<Self, HaproxyError> {
        // All commands contain both names, so other characters could change the commands.
        for name in [backend, prefix] {
            check_name(name)?;
        }
        if prefix.len() > MAX_PREFIX_BYTES {
            return Err(HaproxyError::Prefix(prefix.to_owned()));
        }
        Ok(Self {
            socket: socket.to_owned(),
            backend: backend.to_owned(),
            prefix: prefix.to_owned(),
            options: ServerOptions::default(),
            process_observer: Arc::default(),
            slow_entries: Arc::default(),
        })
    }

    /// Sets the options of servers that are added from now on. No options by default.
    #[must_use]
    pub fn server_options(self, options: ServerOptions) -> Self {
        Self { options, ..self }
    }

    /// Returns the response to `command`.
    async fn send_command(&self, command: &str) -> Result<String, HaproxyError> {
        let unreachable = |source| HaproxyError::Unreachable { socket: self.socket.clone(), source };
        socket::send_command(&self.socket, command).await.map_err(unreachable)
    }

    /// Applies one step.
    async fn apply_step(&self, step: &Step<Server>) -> Result<(), HaproxyError> {
        let commands = self.commands(step)?;
        // HAProxy must confirm a new address before it sends traffic to the server. Another client may have the old
        // address by now, for example another pod. A drain needs no confirmation: it must succeed in any case.
        let must_confirm = matches!(step, Step::Change { from, to, .. } if from.address != to.address && to.serves());
        let (address_commands, commands) = commands.split_at(usize::from(must_confirm));
        if must_confirm {
            self.execute(address_commands).await?;
        }
        self.execute(commands).await
    }

    /// Executes commands in one line and one connection.
    async fn execute(&self, commands: &[String]) -> Result<(), HaproxyError> {
        // One line with `;` runs in one connection. A failed command does not stop the next ones, so the response is
        // checked.
        let command = commands.join("; ");
        let response = self.send_command(&command).await?;
        responses::check_confirmations(commands, &response)
            .map_err(|response| HaproxyError::Rejected { command, response: escape_text(&response) })
    }

    /// Returns the commands of a step.
    fn commands(&self, step: &Step<Server>) -> Result<Vec<String>, HaproxyError> {
        let name = self.full_name(step.name())?;
        let location = format!("{}/{name}", self.backend);
        let set_ready = || format!("set server {location} state ready");
        let enable_health = || format!("enable health {location}");
        Ok(match step {
            Step::Add { value, .. } => {
                check_server(&name, value)?;
                // A new server is in maintenance, so no traffic reaches the server before its last command.
                let mut add = format!("add server {location} {} weight {}", value.address, value.weight);
                if !self.options.is_empty() {
                    add = format!("{add} {}", self.options);
                }
                // HAProxy adds the server with its health checks disabled.
                let enable_health = self.options.has_check().then(enable_health);
                [Some(add), enable_health, Some(set_ready())].into_iter().flatten().collect()
            }
            Step::Change { from, to, .. } => {
                check_server(&name, to)?;
                // `set server addr` takes effect for new connections only. Established sessions keep the old address.
                let set_address =
                    || format!("set server {location} addr {} port {}", to.address.ip(), to.address.port());
                let set_address = (from.address != to.address).then(set_address);
                let set_weight = format!("set server {location} weight {}", to.weight);
                let enable_health = self.process_observer.is_check_disabled(step.name()).then(enable_health);
                [set_address, Some(set_weight), enable_health, Some(set_ready())].into_iter().flatten().collect()
            }
            // Remaining sessions have had their drain time, and would prevent the deletion.
            Step::Remove { .. } => vec![
                format!("set server {location} state maint"),
                format!("shutdown sessions server {location}"),
                format!("del server {location}"),
            ],
        })
    }

    /// Converts the listed servers of the mirror.
    fn actual_state(&self, listed: Vec<ListedServer>, sessions: &BTreeMap<String, u64>) -> ActualState<Server> {
        let mut found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        let mut unchecked = BTreeSet::new();
        for ListedServer { name, address, weight, is_ready, is_check_disabled } in listed {
            let entry_name = name.strip_prefix(&self.prefix).unwrap_or(&name);
            if sessions.get(&name).is_some_and(|count| *count > 0) {
                found.busy.insert(entry_name.to_owned());
            }
            let is_incomplete = is_check_disabled && self.options.has_check();
            if is_incomplete {
                unchecked.insert(entry_name.to_owned());
            }
            // A server of the mirror in maintenance or without its checks is incomplete: an earlier step was
            // interrupted.
            let weight = if is_ready && !is_incomplete { weight } else { 0 };
            found.own.insert(entry_name.to_owned(), Server { address, weight });
        }
        // `Change` steps read this set to enable the health checks of incomplete servers.
        self.process_observer.record_unchecked(unchecked);
        found
    }

    async fn read_state(&self) -> Result<ActualState<Server>, HaproxyError> {
        let backend = &self.backend;
        // One connection reaches one process, so the list belongs to the reported process. Type 4 limits `show stat` to
        // the servers of the backend.
        let command = format!("show info; show servers state {backend}; show stat {backend} 4 -1");
        let response = self.send_command(&command).await?;
        let unexpected = |unexpected: ParseError| match unexpected {
            ParseError::ErrorResponse => {
                let response = escape_text(&responses::error_line(&response));
                HaproxyError::Rejected { command: command.clone(), response }
            }
            ParseError::Malformed(reason) => HaproxyError::Unexpected { command: command.clone(), reason },
        };
        let [info, servers, stat] = responses::split_sections(&response);
        if let Some(process) = Process::read(info) {
            // The old process of a reload keeps its listeners until its sessions end. Changes to it would be lost.
            if process.is_stopping {
                return Err(HaproxyError::Stopping);
            }
            self.process_observer.record_process(&process);
        }
        let (listed, others) = responses::parse_servers(servers, &self.prefix).map_err(unexpected)?;
        let sessions = responses::parse_session_counts(stat, &self.prefix).map_err(unexpected)?;
        Ok(ActualState { others, ..self.actual_state(listed, &sessions) })
    }

    fn full_name(&self, name: &str) -> Result<String, HaproxyError> {
        let name = format!("{}{name}", self.prefix);
        check_name(&name)?;
        Ok(name)
    }
}

/// Checks the characters of a name. A name with other characters could contain a second command.
fn check_name(name: &str) -> Result<(), HaproxyError> {
    if is_valid_name(name, MAX_NAME_BYTES) { Ok(()) } else { Err(HaproxyError::Name(name.to_owned())) }
}

fn check_server(name: &str, server: &Server) -> Result<(), HaproxyError> {
    let Server { address, weight } = *server;
    let name = || name.to_owned();
    if weight > 256 {
        return Err(HaproxyError::Weight { name: name(), weight });
    }
    let is_scoped = matches!(address, SocketAddr::V6(address) if address.scope_id() != 0 || address.flowinfo() != 0);
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() || is_scoped {
        return Err(HaproxyError::Address { name: name(), address });
    }
    Ok(())
}

/// Returns the rank of a step. Additions and other changes come first, then changes that take a server out of service,
/// then removals.
fn apply_stage(step: &Step<Server>) -> u8 {
    match step {
        Step::Add { .. } => 0,
        // Additions precede drains, and drains precede removals. So the number of serving servers never falls below the
        // lower of its old and its new value.
        Step::Change { from, to, .. } => u8::from(from.serves() && !to.serves()),
        Step::Remove { .. } => 2,
    }
}

impl Target for Haproxy {
    type Value = Server;
    type Error = HaproxyError;

    async fn read(&self) -> Result<ActualState<Server>, HaproxyError> {
        let timeout_error =
            |_| HaproxyError::Timeout { command: "show servers state".to_owned(), within: READ_TIMEOUT };
        timeout(READ_TIMEOUT, self.read_state()).await.map_err(timeout_error)?
    }

    /// Applies up to four steps at a time, each within 2 s. No server is drained before all additions have ended.
    async fn apply(&self, steps: &[Step<Server>]) -> Result<(), HaproxyError> {
        let (started, mut errors) = (Instant::now(), Vec::new());
        for steps in steps.chunk_by(|one, next| apply_stage(one) == apply_stage(next)) {
            let execute = |number: usize| async move {
                let step: &Step<Server> = &steps[number];
                let classify = |error: HaproxyError| {
                    if error.concerns_one_server() {
                        StepFailure::Entry(error)
                    } else {
                        StepFailure::MaybeTarget(error)
                    }
                };
                self.apply_step(step).await.map_err(classify)
            };
            let timeout_error = |number: usize| {
                let commands = self.commands(&steps[number]).unwrap_or_default();
                HaproxyError::Timeout { command: commands.join("; "), within: STEP_RUNNER.step_timeout }
            };
            let runner =
                StepRunner { start_within: STEP_RUNNER.start_within.saturating_sub(started.elapsed()), ..STEP_RUNNER };
            let failures = runner.run(steps, &self.slow_entries, execute, timeout_error).await;
            errors.extend(failures.into_iter().map(|(number, error)| (steps[number].name().to_owned(), error)));
            // If a stage failed repeatedly, the run ends: removals must not follow failed additions.
            if errors.iter().filter(|(_, error)| !error.concerns_one_server()).count() >= STEP_RUNNER.max_failures {
                break;
            }
        }
        HaproxyError::combined(errors)
    }

    /// Removes entries that are not valid servers.
    fn validate(&self, desired: &mut BTreeMap<String, Server>) -> BTreeMap<String, String> {
        let reason = |name: &str, server: &Server| {
            let error = self.full_name(name).and_then(|full_name| check_server(&full_name, server)).err();
            error.map(|error| error.to_string())
        };
        let invalid: BTreeMap<_, _> =
            desired.iter().filter_map(|(name, server)| Some((name.clone(), reason(name, server)?))).collect();
        desired.retain(|name, _| !invalid.contains_key(name));
        invalid
    }

    fn change_reason(&self) -> Option<String> {
        self.process_observer.take_reason()
    }

    /// Completes when the process at the socket was reloaded or restarted, or responds again. The process is polled
    /// twice a second.
    async fn changed(&self) {
        loop {
            sleep(POLL_INTERVAL).await;
            // A poll that fails is not a change. The next successful poll reports that the process responds again.
            let response = timeout(POLL_TIMEOUT, self.send_command("show info")).await;
            let process = response.ok().and_then(Result::ok).and_then(|info| Process::read(&info));
            if self.process_observer.poll(process) {
                return;
            }
        }
    }

    fn describe(&self, _found: &ActualState<Server>, steps: &[Step<Server>]) -> Vec<String> {
        let socat_command = |command| format!("echo '{command}' | socat stdio {}", self.socket.display());
        let described = steps.iter().flat_map(|step| match self.commands(step) {
            Ok(commands) => commands.into_iter().map(socat_command).collect(),
            Err(error) => vec![format!("# {error}")],
        });
        described.collect()
    }
}

#[cfg(all(test, unix))]
mod tests;
