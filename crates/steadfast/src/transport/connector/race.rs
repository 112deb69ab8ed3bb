//! Parallel connection attempts to the addresses of a name (RFC 8305).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Instant;

use crate::environment::{SharedEnvironment, Socket};

/// Delay before the next address is tried in parallel (RFC 8305, section 8).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// Timeout of the connection attempt to one address.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a failed address is tried after all others. An API server needs about as long to restart.
const FAILURE_MEMORY: Duration = Duration::from_secs(60);

/// Maximum number of addresses tried for a name.
const MAX_ADDRESSES: usize = 16;

/// Recent failures of addresses, and the rotation of the first address. New connections spread over the working
/// addresses.
pub(super) struct Addresses {
    environment: SharedEnvironment,
    /// Number of the next connection. It rotates the addresses.
    rotation: AtomicUsize,
    failed: Mutex<BTreeMap<SocketAddr, Instant>>,
}

impl Addresses {
    /// Creates the state without failures. The rotation starts at a random index, so that programs do not all choose
    /// the same address.
    pub(super) fn new(environment: SharedEnvironment) -> Self {
        let rotation = AtomicUsize::new(environment.random() as usize);
        Self { environment, rotation, failed: Mutex::default() }
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Instant>> {
        self.failed.lock()
    }

    fn record_failure(&self, address: SocketAddr) {
        let now = self.environment.now();
        let mut failed = self.failures();
        failed.retain(|_, at| now.since(*at) < FAILURE_MEMORY);
        failed.insert(address, now);
    }

    /// Returns `addresses` in the order of attempts: rotated, families alternating, recently failed ones last.
    ///
    /// The resolver's order within a family is not kept: many resolvers shuffle, which would undo the rotation.
    fn order(&self, mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let rotation = self.rotation.fetch_add(1, Ordering::Relaxed);
        // The resolver sorts by RFC 6724, so its first address shows the preferred family.
        let Some(preferred) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
        addresses.sort_unstable();
        addresses.dedup();
        let (mut preferred_family, mut other_family): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| address.is_ipv6() == preferred);
        for family in [&mut preferred_family, &mut other_family] {
            let start = rotation % family.len().max(1);
            family.rotate_left(start);
        }
        let now = self.environment.now();
        let failed = self.failures();
        let mut order = Vec::with_capacity(preferred_family.len() + other_family.len());
        let (mut preferred_family, mut other_family) = (preferred_family.into_iter(), other_family.into_iter());
        loop {
            let (next, alternate) = (preferred_family.next(), other_family.next());
            if next.is_none() && alternate.is_none() {
                break;
            }
            order.extend(next.into_iter().chain(alternate));
        }
        // A stable sort keeps the alternation of families within both groups.
        order.sort_by_key(|address| failed.get(address).is_some_and(|at| now.since(*at) < FAILURE_MEMORY));
        order.truncate(MAX_ADDRESSES);
        order
    }
}

/// Address with an open connection. Dropping the value records a failure of the address, unless [`prove`](Self::prove)
/// was called.
pub(in crate::transport) struct UnprovenAddress {
    address: SocketAddr,
    addresses: Arc<Addresses>,
    proven: bool,
}

impl UnprovenAddress {
    /// Returns the address.
    pub(in crate::transport) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Marks the address as working after a valid response.
    pub(in crate::transport) fn prove(mut self) {
        self.addresses.failures().remove(&self.address);
        self.proven = true;
    }
}

impl Drop for UnprovenAddress {
    fn drop(&mut self) {
        if !self.proven {
            self.addresses.record_failure(self.address);
        }
    }
}

/// Connects in `environment` to the first address of `host` that accepts. Calls `on_resolved` once the addresses are
/// known.
///
/// # Errors
///
/// Returns an error if the name cannot be resolved or has no address. If no address accepts, returns the errors of all
/// tried addresses.
pub(super) async fn dial(
    addresses: &Arc<Addresses>,
    environment: &SharedEnvironment,
    host: &str,
    port: u16,
    on_resolved: impl FnOnce(),
) -> io::Result<(Box<dyn Socket>, UnprovenAddress)> {
    let found = environment.resolve(host, port).await.map_err(|error| {
        let text = format!("cannot resolve {host:?}: {error}");
        io::Error::new(error.kind(), text)
    })?;
    on_resolved();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("the name {host:?} has no address")));
    }
    let mut waiting = addresses.order(found).into_iter();
    let mut attempts = FuturesUnordered::new();
    // Addresses of pending attempts, in the order of their start.
    let mut in_flight = Vec::new();
    let mut failures: Vec<(SocketAddr, io::Error)> = Vec::new();
    loop {
        let started = waiting.next().map(|address| {
            in_flight.push(address);
            attempts.push(attempt(environment, address));
        });
        if attempts.is_empty() {
            return Err(summary(&failures));
        }
        // The next address is tried after `NEXT_ADDRESS_DELAY`, or immediately if an attempt fails.
        let next = environment.sleep_until(environment.now() + NEXT_ADDRESS_DELAY);
        tokio::select! {
            biased;
            Some((address, outcome)) = attempts.next() => match outcome {
                Ok(socket) => {
                    // Earlier attempts that are still pending count as failures of their addresses.
                    for slow in in_flight.into_iter().take_while(|earlier| *earlier != address) {
                        addresses.record_failure(slow);
                    }
                    return Ok((socket, UnprovenAddress { address, addresses: addresses.clone(), proven: false }));
                }
                Err(error) => {
                    addresses.record_failure(address);
                    in_flight.retain(|other| *other != address);
                    failures.push((address, error));
                }
            },
            () = next, if started.is_some() => {}
        }
    }
}

async fn attempt(environment: &SharedEnvironment, address: SocketAddr) -> (SocketAddr, io::Result<Box<dyn Socket>>) {
    let outcome = tokio::select! {
        biased;
        outcome = environment.dial(address) => outcome,
        () = environment.sleep_until(environment.now() + ADDRESS_TIMEOUT) => {
            let silence = format!("no response within {} s", ADDRESS_TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, silence))
        }
    };
    (address, outcome)
}

/// Combines all errors in their order.
fn summary(failures: &[(SocketAddr, io::Error)]) -> io::Error {
    let kind = failures.last().map_or(io::ErrorKind::NotFound, |(_, error)| error.kind());
    let messages: Vec<String> = failures.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    io::Error::new(kind, messages.join("; "))
}
