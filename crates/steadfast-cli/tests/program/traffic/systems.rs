//! The DNS server and the etcd of a fixture.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fixture::Fixture;
use super::records::{Reader, resolve};
use crate::dns_server::{DnsKind, DnsServer, KEY};
use crate::external_systems::Etcd;
use crate::removals::ContentLossPeriod;

/// Time within which names must exist again after the zone was lost.
const ZONE_LIMIT: Duration = Duration::from_secs(10);

/// Time limit for restoring lost keys: the program restores them immediately, and a read takes some time.
const KEYS_LIMIT: Duration = Duration::from_secs(1);

/// A DNS server and an etcd.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    dns: Arc<DnsServer>,
    etcd: Arc<Etcd>,
}

impl Records {
    /// Starts both systems in `folder`, and writes the key of the zone to the file `key` there. Returns `None` if a
    /// system is not installed.
    pub(crate) fn start(folder: &Path, kind: DnsKind) -> Option<Self> {
        std::fs::write(folder.join("key"), KEY).expect("a file");
        let (dns, etcd) = (DnsServer::start(folder, kind)?, Etcd::start(folder)?);
        Some(Self { dns: Arc::new(dns), etcd: Arc::new(etcd) })
    }

    /// Address of the DNS server, and URL of etcd.
    pub(crate) fn addresses(&self) -> (String, String) {
        let port = self.dns.port;
        (format!("127.0.0.1:{port}"), self.etcd.url.clone())
    }

    /// Readers of the addresses behind `web.example.org`, `west.example.org` and `/services/web/`.
    pub(crate) fn readers(&self) -> Vec<(&'static str, Reader)> {
        let (dns, etcd) = (self.dns.clone(), self.etcd.clone());
        let names = move || {
            let mut addresses = resolve(dns.port, "web.example.org")?;
            addresses.append(&mut resolve(dns.port, "west.example.org")?);
            Some(addresses)
        };
        let keys = move || {
            let values = etcd.values("/services/web/")?;
            // An invalid address counts as foreign, like an address without a pod.
            let address = |value: String| value.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
            Some(values.into_iter().map(address).collect::<BTreeSet<_>>())
        };
        vec![("DNS", Box::new(names) as Reader), ("etcd", Box::new(keys))]
    }
}

impl Fixture {
    fn lose(&mut self, system: &'static str, event: &str, limit: Duration, action: impl FnOnce(&Records)) {
        self.log_event(event);
        let start = Instant::now();
        action(self.records.as_ref().expect("records"));
        self.log_event(&format!("{system} responds again"));
        self.losses.push(ContentLossPeriod { system, start, end: Instant::now() + limit.mul_f64(self.slowness) });
    }

    /// Restores the zone from a time before its first name.
    pub(crate) fn restore_zone(&mut self) {
        self.lose("DNS", "the zone is restored", ZONE_LIMIT, |records| {
            records.dns.restore();
        });
    }

    /// Revokes the lease of all keys.
    pub(crate) fn lose_lease(&mut self) {
        self.lose("etcd", "the lease is revoked", KEYS_LIMIT, |records| {
            records.etcd.revoke_leases();
        });
    }

    /// Kills etcd and starts it again, which loses no key.
    pub(crate) fn restart_etcd(&mut self) {
        self.lose("etcd", "etcd restarts", Duration::ZERO, |records| {
            records.etcd.restart();
        });
    }
}
