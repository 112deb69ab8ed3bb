//! Names of a zone, maintained with dynamic updates ([RFC 2136](https://www.rfc-editor.org/rfc/rfc2136)) that are
//! signed with a key (TSIG).
//!
//! A name belongs to the mirror if `_steadfast.NAME` has the mirror's mark as its only TXT record. The mirror changes
//! no other names. The mark is not at the name itself because a name with a CNAME can have no other record. The mark is
//! added and deleted in the same update as the records. Each update requires that the mark exists, or that neither the
//! name nor a mark exists. So a name that another client took since the last read stays unchanged. At a name with the
//! mirror's mark, the mirror maintains all records of type A, AAAA, CNAME and SRV.
//!
//! TXT, MX and PTR records at such a name may belong to other clients, and so may all records at the apex of the
//! zone. In these cases, each record of the mirror has its own mark, `HASH._steadfast.NAME`, with the hash of type
//! and data. Only records with such a mark are changed or deleted; SOA and NS never are.
//!
//! The mirror reads the zone by a transfer (AXFR) with the same key. A query returns only the records of a known
//! name, so only a transfer finds the records of an earlier process.

mod contents;
mod error;
mod key;
mod owner;
mod query;
mod record;
mod term;
mod update;
mod validate;
mod wire;
mod zones;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::base::Name;
use domain::base::iana::{Rcode, Rtype};
use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep_until, timeout};

use crate::batches::{BatchLimits, BatchSender, FailedChanges, RejectionCache, send_in_batches};
use crate::entry::{ActualState, Step, Target};
use crate::owner::ClaimResult;
use crate::rotation::Rotation;
use contents::ZoneContents;
pub use error::{DnsError, DnsOperation};
pub use key::TsigKey;
use query::{Response, ZoneQuery};
pub use record::{DnsRecord, RecordData, entry};
use update::Update;
pub use validate::entries;
use wire::{DnsConnection, WireError};
pub use zones::Zones;

/// Bounds of one update. The size is estimated without compression of names. A DNS message has at most 65535 bytes.
const UPDATE_LIMITS: BatchLimits = BatchLimits { count: 50, bytes: 48 * 1024 };

/// Interval between two checks of the serial number.
const SERIAL_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout for resolving the server's name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Names of one zone that belong to a mirror.
#[derive(Clone, Debug)]
pub struct Zone {
    server: String,
    addresses: Rotation<SocketAddr>,
    name: String,
    wire_name: Name<Vec<u8>>,
    key: TsigKey,
    mark: String,
    state: Arc<Mutex<State>>,
    failed_changes: FailedChanges,
    rejections: RejectionCache,
}

/// Result of the last read. The server rejects an update that depends on data changed since that read.
#[derive(Debug, Default)]
struct State {
    contents: ZoneContents,
    /// Instant of the next check of the serial number.
    next_check: Option<Instant>,
    /// True if no server responded to the last request.
    is_unreachable: bool,
    /// True if the mirror changed the zone after the last read. The mirror reads the zone again afterwards.
    has_written: bool,
    /// Strings of the record with the leader's term, which each update requires. `None` without replicas, or if the key
    /// may not write the record.
    term: Option<Vec<Vec<u8>>>,
    /// Last renewal of the record by this process: the term, and the time in seconds since 1970.
    term_renewal: Option<(u64, u64)>,
}

impl Zone {
    /// Creates the target for the names with `mark` in the zone `zone`. `server` is the primary server of the zone:
    /// one or several addresses or names, separated by commas. The port defaults to 53. The addresses of a name are
    /// tried in turn, starting with the last one that responded.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the zone or the mark is invalid.
    pub fn new(server: &str, zone: &str, key: TsigKey, mark: &str) -> Result<Self, DnsError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
        if !(1..=200).contains(&mark.len()) || !mark.bytes().all(is_plain) {
            return Err(DnsError::Mark(mark.to_owned()));
        }
        let name = record::canonical_name(zone)?;
        let (wire_name, mark) = (record::parse_name(&name)?, format!("steadfast:{mark}"));
        let servers: Vec<_> = server.split(',').map(|server| with_port(server.trim())).collect();
        let (server, addresses) = (servers.join(","), Rotation::new(Vec::new()));
        let (state, failed_changes, rejections) = (Arc::default(), FailedChanges::default(), RejectionCache::default());
        Ok(Self { server, addresses, name, wire_name, key, mark, state, failed_changes, rejections })
    }

    /// Returns the name of the zone, with a dot at the end.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn dns_error(&self, operation: DnsOperation, updates: &[&Update], error: WireError) -> DnsError {
        let (server, zone) = (self.server.clone(), self.name.clone());
        let names = || updates.iter().map(|update| update.name.clone()).collect();
        match error {
            WireError::Io(source) => DnsError::Unreachable { server, source },
            WireError::Signature(reason) => {
                let key = self.key.tsig.name().fmt_with_dot().to_string();
                DnsError::Tsig { server, key, reason }
            }
            // These codes are used for unmet prerequisites (RFC 2136, section 3.2): another client changed the name
            // since the read.
            WireError::Rejected(rcode @ (Rcode::YXDOMAIN | Rcode::YXRRSET | Rcode::NXDOMAIN | Rcode::NXRRSET)) => {
                DnsError::Conflict { zone, names: names(), rcode }
            }
            WireError::Rejected(rcode) => {
                let zone = match updates {
                    [update] => format!("{} in {zone}", update.name),
                    _ => zone,
                };
                DnsError::Rejected { server, zone, operation, rcode }
            }
            WireError::MessageFull => DnsError::MessageFull { names: names() },
            WireError::Malformed(reason) => DnsError::Unexpected { server, reason },
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn contents(&self) -> ZoneContents {
        self.state().contents.clone()
    }

    /// Returns the addresses of the server, in the order in which they should be tried.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, DnsError> {
        let (resolved, reason) = resolve_all(&self.server, lookup_host).await;
        if !resolved.is_empty() {
            // The name is resolved again for each request, because the address of a server in a cluster can change.
            // `refresh` keeps the order.
            self.addresses.refresh(resolved);
        }
        // Without a new resolution, earlier addresses may still work.
        let order = self.addresses.order();
        if order.is_empty() { Err(DnsError::Unresolved { server: self.server.clone(), reason }) } else { Ok(order) }
    }

    /// Sends a query to one address after another until an address responds.
    async fn query(&self, query: ZoneQuery<'_>) -> Result<Response, DnsError> {
        let mut first_error = None;
        for address in self.addresses().await? {
            match self.query_at(address, query).await {
                Ok(response) => {
                    self.addresses.record_success(&address);
                    return Ok(response);
                }
                Err(error) => {
                    self.addresses.record_failure(&address);
                    first_error = first_error.or_else(|| Some(self.dns_error(query.operation(), &[], error)));
                }
            }
        }
        Err(first_error.unwrap_or_else(|| DnsError::Unresolved { server: self.server.clone(), reason: String::new() }))
    }

    async fn query_at(&self, address: SocketAddr, query: ZoneQuery<'_>) -> Result<Response, WireError> {
        let mut connection = DnsConnection::open(address).await?;
        match query {
            ZoneQuery::Transfer => connection.transfer(&self.wire_name, &self.key).await.map(Response::Transfer),
            ZoneQuery::Records(name, kind) => {
                let (records, serial) = connection.query(name, kind, &self.key).await?;
                Ok(Response::Records(records, serial))
            }
        }
    }

    /// Connects to the first address that accepts a connection.
    async fn connect(&self) -> Result<(SocketAddr, DnsConnection), DnsError> {
        // Only the connection is retried at other addresses. An update that was sent may have been applied, and is not
        // repeated.
        let mut first_error = None;
        for address in self.addresses().await? {
            match DnsConnection::open(address).await {
                Ok(connection) => return Ok((address, connection)),
                Err(error) => {
                    self.addresses.record_failure(&address);
                    first_error = first_error.or_else(|| Some(self.dns_error(DnsOperation::Update, &[], error.into())));
                }
            }
        }
        Err(first_error.unwrap_or_else(|| DnsError::Unresolved { server: self.server.clone(), reason: String::new() }))
    }

    /// Returns the serial number of the zone.
    async fn serial(&self) -> Result<Option<u32>, DnsError> {
        Ok(self.query(ZoneQuery::Records(&self.wire_name, Rtype::SOA)).await?.records().1)
    }

    /// Completes when the serial number differs from that of the last read, or when the server responds again.
    async fn serial_changed(&self) {
        loop {
            // The time of the next check is kept in the state: a caller may drop this future, and must not restart the
            // interval.
            let next_check = *self.state().next_check.get_or_insert_with(|| Instant::now() + SERIAL_INTERVAL);
            sleep_until(next_check).await;
            let serial_result = self.serial().await;
            let mut state = self.state();
            state.next_check = Some(Instant::now() + SERIAL_INTERVAL);
            match serial_result {
                Ok(serial) => {
                    let has_recovered = std::mem::take(&mut state.is_unreachable);
                    // The mirror's own updates increment the serial as well. After a write, only the next read can
                    // detect a change by another client.
                    let has_changed =
                        state.contents.serial.is_some() && serial.is_some() && state.contents.serial != serial;
                    if has_recovered || (has_changed && !state.has_written) {
                        // Each change is reported once: if the following read fails, the mirror retries the read.
                        state.contents.serial = serial;
                        return;
                    }
                }
                Err(_) => state.is_unreachable = true,
            }
        }
    }
}

/// Returns the addresses of all `servers` in their order, and the reason of the last failed lookup. The lookups run
/// concurrently: several names without a response must not delay each request by one timeout after another.
async fn resolve_all<'a, I: Iterator<Item = SocketAddr>, F: Future<Output = io::Result<I>>>(
    servers: &'a str,
    lookup: impl Fn(&'a str) -> F,
) -> (Vec<SocketAddr>, String) {
    let lookups: Vec<_> = servers.split(',').map(|server| timeout(RESOLVE_TIMEOUT, lookup(server))).collect();
    let (mut resolved, mut reason) = (Vec::new(), "the name has no address".to_owned());
    for looked_up in join_all(lookups).await {
        match looked_up {
            Ok(Ok(addresses)) => resolved.extend(addresses),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = format!("no response within {RESOLVE_TIMEOUT:?}"),
        }
    }
    (resolved, reason)
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

/// Returns the text that identifies a rejected record.
fn rejection_key(record: &DnsRecord) -> String {
    format!("{} {}", record.name, record.data)
}

/// A zone, and a connection to its server.
struct UpdateSender<'a> {
    zone: &'a Zone,
    address: SocketAddr,
    connection: DnsConnection,
}

impl BatchSender for UpdateSender<'_> {
    type Change = Update;
    type Error = DnsError;

    fn size(&self, update: &Update) -> usize {
        update.size()
    }

    fn id(&self, update: &Update) -> String {
        update.id()
    }

    // The term is a prerequisite of each message. The server therefore rejects a
    // delayed message of a former leader.
    async fn send(&mut self, updates: &[&Update]) -> Result<(), DnsError> {
        let Zone { wire_name, key, mark, .. } = self.zone;
        let term = self.zone.term_condition()?;
        let send_result =
            self.connection.update(wire_name, key, |builder| update::write_update(updates, mark, term, builder)).await;
        let send_result = send_result.map_err(|error| self.zone.dns_error(DnsOperation::Update, updates, error));
        let is_server_failure = |error: &DnsError| {
            error.is_server_failure() || matches!(error, DnsError::Rejected { rcode, .. } if *rcode == Rcode::SERVFAIL)
        };
        if send_result.as_ref().is_err_and(is_server_failure) {
            // The next read starts at another address.
            self.zone.addresses.record_failure(&self.address);
        }
        match (&send_result, updates) {
            (Ok(()), _) => self.zone.rejections.record_success(),
            (Err(error @ (DnsError::Rejected { .. } | DnsError::MessageFull { .. })), [update])
                if !self.ends_attempt(error) =>
            {
                // Only a message with a single name identifies the rejected records.
                self.zone.rejections.add(update.added.iter().map(rejection_key), error);
            }
            _ => {}
        }
        send_result
    }

    fn ends_attempt(&self, error: &DnsError) -> bool {
        error.is_server_failure()
    }
}

impl Target for Zone {
    type Value = DnsRecord;
    type Error = DnsError;

    const HAS_OWNER_RECORD: bool = true;

    async fn read(&self) -> Result<ActualState<DnsRecord>, DnsError> {
        let transferred = self.query(ZoneQuery::Transfer).await;
        let mut state = self.state();
        state.next_check = Some(Instant::now() + SERIAL_INTERVAL);
        match transferred {
            Ok(response) => {
                let (found, contents) = response.transferred_zone().split(&self.name, &self.mark);
                state.contents = contents;
                state.is_unreachable = false;
                state.has_written = false;
                Ok(found)
            }
            Err(error) => {
                state.is_unreachable |= matches!(error, DnsError::Unreachable { .. });
                Err(error)
            }
        }
    }

    async fn apply(&self, steps: &[Step<DnsRecord>]) -> Result<(), DnsError> {
        let (updates, result) = update::build_updates(&self.name, &self.contents(), steps);
        let (address, connection) = self.connect().await?;
        // The flag is set before the first message, because an update without a response may have been applied.
        self.state().has_written = true;
        let update_sender = UpdateSender { zone: self, address, connection };
        result.and(send_in_batches(update_sender, &updates, UPDATE_LIMITS, &self.failed_changes).await)
    }

    fn describe(&self, found: &ActualState<DnsRecord>, steps: &[Step<DnsRecord>]) -> Vec<String> {
        let mut contents = self.contents();
        // A dry run never reads the zone. The marks follow from the records that the mirror owns.
        let names = found.own.values().map(|record| record.name.clone()).filter(|name| *name != self.name);
        contents.marked.extend(names);
        let has_own_mark = |record: &&DnsRecord| record.name == self.name || record.data.may_share_name();
        let individually_marked = found.own.values().filter(has_own_mark);
        contents.records.extend(individually_marked.map(|record| (record.name.clone(), record::record_hash(record))));
        let contents = ZoneContents { own: found.own.clone(), ..contents };
        let (updates, result) = update::build_updates(&self.name, &contents, steps);
        let comment = result.err().map(|error| format!("; {error}"));
        let server = self.server.split(',').next().unwrap_or_default();
        let (host, port) = server.rsplit_once(':').unwrap_or((server, "53"));
        let host = host.trim_matches(['[', ']']);
        let header = [format!("server {host} {port}"), format!("zone {}", self.name)];
        let changes = updates.iter().flat_map(|update| update::nsupdate_commands(update, &self.mark));
        comment.into_iter().chain(header).chain(changes).collect()
    }

    fn validate(&self, desired: &mut BTreeMap<String, DnsRecord>) -> BTreeMap<String, String> {
        let mut rejected = BTreeMap::new();
        desired.retain(|name, record| {
            let reason = self.rejections.reason(&rejection_key(record));
            let is_rejected = reason.is_some();
            rejected.extend(reason.map(|reason| (name.clone(), reason)));
            !is_rejected
        });
        let conflicts = validate::resolve_conflicts(&self.name, desired, &self.contents());
        rejected.extend(conflicts.into_iter().map(|(name, error)| (name, error.to_string())));
        rejected
    }

    async fn changed(&self) {
        self.serial_changed().await;
    }

    async fn claim(&self, instance: &str, now: u64) -> Result<ClaimResult, DnsError> {
        self.claim_names(instance, now).await
    }

    async fn record_term(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        self.record_term(term, now).await
    }
}

#[cfg(test)]
mod tests;
