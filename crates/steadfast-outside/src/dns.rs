//! The names of a zone, by dynamic update ([RFC 2136](https://www.rfc-editor.org/rfc/rfc2136)) signed with a key (TSIG).
//!
//! A name is the mirror's if `_steadfast.NAME` has the mirror's mark, a TXT record and no second one; all other names are left alone, whatever
//! they have. The mark is beside a name and not at it, because what has a CNAME can have nothing else. It comes and goes in the same
//! update as what it is for, and each update takes that the mark is there, or that neither name nor mark is: so that no name is touched that
//! somebody else has, not even one that somebody has taken since it was looked at. Of a name of its own the mirror has the records of type A, AAAA,
//! CNAME and SRV; of other types it touches none.
//!
//! What there is it reads by a transfer of the zone (AXFR) with the same key, which has to be allowed to. A server that answers questions
//! answers them one by one, and does not say what else it has; whatever was left there by a mirror's earlier life is found by a transfer alone.

mod contents;
mod error;
mod key;
mod record;
mod update;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use domain::base::Name;
use domain::base::iana::Rcode;

use crate::entry::{Found, Step, Target};
use crate::together::{Sender, together};
use contents::Seen;
pub use error::{Asked, DnsError};
pub use key::Key;
pub use record::{Data, Record, entries};
use update::Update;
use wire::{Connection, Trouble};

/// So many names are changed by one message, unless something is wrong with one of them.
const TOGETHER: usize = 50;

/// The names of one zone that are a mirror's.
#[derive(Clone, Debug)]
pub struct Zone {
    server: String,
    name: String,
    wire: Name<Vec<u8>>,
    key: Key,
    mark: String,
    /// What the last look has found, for what is done after it. Where that is no more so, the server refuses what is done.
    seen: Arc<Mutex<Seen>>,
}

impl Zone {
    /// The names that bear `mark` in the zone called `zone`, whose primary server is `server`: an address or a name, with a port
    /// unless that is 53.
    ///
    /// # Errors
    ///
    /// Where the zone's name is none, or the mark cannot be one.
    pub fn new(server: &str, zone: &str, key: Key, mark: &str) -> Result<Self, DnsError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
        if !(1..=200).contains(&mark.len()) || !mark.bytes().all(is_plain) {
            return Err(DnsError::Mark(mark.to_owned()));
        }
        let name = record::canonical(zone)?;
        let (wire, mark) = (record::parsed(&name)?, format!("steadfast:{mark}"));
        Ok(Self { server: with_port(server), name, wire, key, mark, seen: Arc::default() })
    }

    async fn connect(&self) -> Result<Connection, DnsError> {
        Connection::open(&self.server).await.map_err(|error| self.told(Asked::Transfer, &[], error.into()))
    }

    fn told(&self, what: Asked, updates: &[Update], trouble: Trouble) -> DnsError {
        let (server, zone) = (self.server.clone(), self.name.clone());
        let names = || updates.iter().map(|update| update.name.clone()).collect();
        match trouble {
            Trouble::Socket(source) => DnsError::Socket { server, source },
            Trouble::Signature(why) => {
                let key = self.key.tsig.name().fmt_with_dot().to_string();
                DnsError::Tsig { server, key, why }
            }
            Trouble::Refused(rcode @ (Rcode::YXDOMAIN | Rcode::YXRRSET | Rcode::NXDOMAIN | Rcode::NXRRSET)) => {
                DnsError::Taken { zone, names: names(), rcode }
            }
            Trouble::Refused(rcode) => DnsError::Refused { server, zone, what, rcode },
            Trouble::TooMuch => DnsError::TooMuch { names: names() },
            Trouble::Form(why) => DnsError::Unexpected { server, why },
        }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn with_port(server: &str) -> String {
    if let Ok(address) = server.parse::<IpAddr>() {
        SocketAddr::new(address, 53).to_string()
    } else if server.contains(':') {
        server.to_owned()
    } else {
        format!("{server}:53")
    }
}

/// A zone, and a connection to its server.
struct Conversation<'a> {
    zone: &'a Zone,
    connection: Connection,
}

impl Sender for Conversation<'_> {
    type Change = Update;
    type Error = DnsError;

    async fn send(&mut self, updates: &[Update]) -> Result<(), DnsError> {
        let Zone { wire, key, mark, .. } = self.zone;
        let sent = self.connection.update(wire, key, |builder| update::write(updates, mark, builder)).await;
        sent.map_err(|trouble| self.zone.told(Asked::Update, updates, trouble))
    }

    fn is_of_one(error: &DnsError) -> bool {
        match error {
            DnsError::Taken { .. } | DnsError::TooMuch { .. } => true,
            DnsError::Refused { rcode, .. } => !matches!(*rcode, Rcode::NOTAUTH | Rcode::NOTIMP),
            _ => false,
        }
    }
}

impl Target for Zone {
    type Value = Record;
    type Error = DnsError;

    async fn look(&self) -> Result<Found<Record>, DnsError> {
        let mut connection = self.connect().await?;
        let transferred = connection.transfer(&self.wire, &self.key).await;
        let contents = transferred.map_err(|trouble| self.told(Asked::Transfer, &[], trouble))?;
        let (found, seen) = contents.divided(&self.mark);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        Ok(found)
    }

    async fn act(&self, steps: &[Step<Record>]) -> Result<(), DnsError> {
        let (updates, first) = update::updates(&self.name, &self.seen(), steps);
        let conversation = Conversation { zone: self, connection: self.connect().await? };
        first.and(together(conversation, &updates, TOGETHER).await)
    }

    fn describe(&self, found: &Found<Record>, steps: &[Step<Record>]) -> Vec<String> {
        let mut seen = self.seen();
        seen.marked.extend(found.own.values().map(|record| record.name.clone()));
        let seen = Seen { own: found.own.clone(), ..seen };
        let (updates, wrong) = update::updates(&self.name, &seen, steps);
        let wrong = wrong.err().map(|error| format!("; {error}"));
        let (host, port) = self.server.rsplit_once(':').unwrap_or((&self.server, "53"));
        let host = host.trim_matches(['[', ']']);
        let head = [format!("server {host} {port}"), format!("zone {}", self.name)];
        let changes = updates.iter().flat_map(|update| update::words(update, &self.mark));
        wrong.into_iter().chain(head).chain(changes).collect()
    }
}

#[cfg(test)]
mod tests;
