//! The servers of a backend of HAProxy, by its runtime socket: put into and taken out of traffic without a reload.
//!
//! A server is the mirror's if its name begins with the mirror's prefix; all others are left alone. What the mirror has put there is gone
//! after a reload or a restart of HAProxy, and put there again at the next look.
//!
//! Written for HAProxy 2.5 and newer, where servers can be added to a backend that balances dynamically
//! ([management guide, 9.3](https://docs.haproxy.org/2.6/management.html#9.3)).

mod answers;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::entry::{Found, Step, Target, Value};
use answers::{Listed, Unexpected};

/// A server behind a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    /// How much of the traffic it is given beside the others: 1 to 256, or 0 for nothing new.
    pub weight: u16,
}

impl Value for Server {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self { weight: 0, ..*self })
    }
}

/// The servers of one backend that are a mirror's.
#[derive(Clone, Debug)]
pub struct Haproxy {
    socket: PathBuf,
    backend: String,
    prefix: String,
}

/// Why a backend cannot be seen or changed.
#[derive(Debug, thiserror::Error)]
pub enum HaproxyError {
    /// A name that is sent to HAProxy would be read as something else.
    #[error(
        "{0:?} can be no name in HAProxy: it may have letters, digits, `-`, `_` and `.` in it, and up to 128 of them"
    )]
    Name(String),
    /// HAProxy takes no such weight.
    #[error("the server {name} cannot have the weight {weight}: from 0 to 256")]
    Weight {
        /// The server.
        name: String,
        /// What it was to be given.
        weight: u16,
    },
    /// Nobody answers.
    #[error("HAProxy does not answer at {}: {source}; is `stats socket {} level admin` in its `global` section, and may this user open it?", .socket.display(), .socket.display())]
    Socket {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not do what it was told.
    #[error("HAProxy refused `{command}`: {answer}{}", remedy(.answer))]
    Refused {
        /// What it was told.
        command: String,
        /// What it said.
        answer: String,
    },
    /// It answers what this was not written for.
    #[error("HAProxy answered `{command}` in an unknown form: {why}")]
    Unexpected {
        /// What it was asked.
        command: String,
        /// What is unknown about it.
        why: String,
    },
}

/// What to do about an answer.
fn remedy(answer: &str) -> &'static str {
    match answer {
        _ if answer.contains("ermission") => "; the socket needs `level admin`",
        _ if answer.contains("No such backend") || answer.contains("Can't find backend") => {
            "; name a backend of its configuration"
        }
        _ if answer.contains("must use a dynamic load balancing") => {
            "; give the backend `balance roundrobin` or another dynamic one"
        }
        _ => "",
    }
}

impl Haproxy {
    /// The servers whose names begin with `prefix` of the backend called `backend`, of the HAProxy whose runtime API is at
    /// `socket`.
    ///
    /// # Errors
    ///
    /// Where one of the names can be none.
    pub fn new(socket: &Path, backend: &str, prefix: &str) -> Result<Self, HaproxyError> {
        // All that it sends is made of these.
        for name in [backend, prefix] {
            check(name)?;
        }
        Ok(Self { socket: socket.to_owned(), backend: backend.to_owned(), prefix: prefix.to_owned() })
    }

    /// What HAProxy answers to `command`.
    async fn ask(&self, command: &str) -> Result<String, HaproxyError> {
        let failed = |source| HaproxyError::Socket { socket: self.socket.clone(), source };
        socket::ask(&self.socket, command).await.map_err(failed)
    }

    /// Has it do what `command` says.
    async fn tell(&self, command: &str) -> Result<(), HaproxyError> {
        let answer = self.ask(command).await?;
        if answers::is_done(command, &answer) {
            return Ok(());
        }
        Err(HaproxyError::Refused { command: command.to_owned(), answer: answer.trim().to_owned() })
    }

    /// The commands that a step is made of.
    fn commands(&self, step: &Step<Server>) -> Result<Vec<String>, HaproxyError> {
        let name = self.named(step.name())?;
        let weight_of = |server: &Server| match server.weight {
            0..=256 => Ok(server.weight),
            weight => Err(HaproxyError::Weight { name: name.clone(), weight }),
        };
        let place = format!("{}/{name}", self.backend);
        let ready = || format!("set server {place} state ready");
        Ok(match step {
            Step::Add { value, .. } => {
                // It comes in maintenance: nothing reaches it before all of it is as it is to be.
                vec![format!("add server {place} {} weight {}", value.address, weight_of(value)?), ready()]
            }
            Step::Change { from, to, .. } => {
                let weight = format!("set server {place} weight {}", weight_of(to)?);
                let moved = || format!("set server {place} addr {} port {}", to.address.ip(), to.address.port());
                if from.address == to.address { vec![weight, ready()] } else { vec![moved(), weight, ready()] }
            }
            // Whoever is still there has been waited for as long as is granted, and would keep it from being deleted.
            Step::Remove { .. } => vec![
                format!("set server {place} state maint"),
                format!("shutdown sessions server {place}"),
                format!("del server {place}"),
            ],
        })
    }

    fn named(&self, name: &str) -> Result<String, HaproxyError> {
        let name = format!("{}{name}", self.prefix);
        check(&name)?;
        Ok(name)
    }
}

/// What is no such name could be a second command.
fn check(name: &str) -> Result<(), HaproxyError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(HaproxyError::Name(name.to_owned()))
    }
}

impl Target for Haproxy {
    type Value = Server;
    type Error = HaproxyError;

    async fn look(&self) -> Result<Found<Server>, HaproxyError> {
        let command = format!("show servers state {}", self.backend);
        let answer = self.ask(&command).await?;
        let unexpected = |command: &str, unexpected: Unexpected, answer: &str| match unexpected {
            Unexpected::Refused => {
                HaproxyError::Refused { command: command.to_owned(), answer: answer.trim().to_owned() }
            }
            Unexpected::Form(why) => HaproxyError::Unexpected { command: command.to_owned(), why },
        };
        let listed = answers::servers(&answer).map_err(|what| unexpected(&command, what, &answer))?;
        // Of its servers alone: 4.
        let command = format!("show stat {} 4 -1", self.backend);
        let answer = self.ask(&command).await?;
        let used = answers::used(&answer).map_err(|what| unexpected(&command, what, &answer))?;
        let mut found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        for Listed { name, address, weight, is_ready } in listed {
            let Some(own) = name.strip_prefix(&self.prefix) else {
                found.others.insert(name);
                continue;
            };
            if used.get(&name).is_some_and(|used| *used > 0) {
                found.busy.insert(own.to_owned());
            }
            // One of its own that is in maintenance takes nothing: it was left there half-way.
            let weight = if is_ready { weight } else { 0 };
            found.own.insert(own.to_owned(), Server { address, weight });
        }
        Ok(found)
    }

    async fn act(&self, steps: &[Step<Server>]) -> Result<(), HaproxyError> {
        let mut first = Ok(());
        for step in steps {
            let done = async {
                for command in self.commands(step)? {
                    self.tell(&command).await?;
                }
                Ok(())
            };
            // What is wrong with one server keeps no other waiting.
            let done: Result<(), HaproxyError> = done.await;
            first = first.and(done);
        }
        first
    }

    fn describe(&self, _found: &Found<Server>, steps: &[Step<Server>]) -> Vec<String> {
        let quoted = |command| format!("echo '{command}' | socat stdio {}", self.socket.display());
        let described = steps.iter().flat_map(|step| match self.commands(step) {
            Ok(commands) => commands.into_iter().map(quoted).collect(),
            Err(error) => vec![format!("# {error}")],
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests;
