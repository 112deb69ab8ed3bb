//! The snippets of the page on mirrors, verbatim.
//!
//! `crates/steadfast-testing/tests/documents` checks that this file contains each of them.

// The snippets are written for readability, and some need a context that a function here provides.
#![allow(unused, clippy::all, clippy::pedantic)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use steadfast_targets::dns::DnsRecord;
use steadfast_targets::etcd::{Etcd, EtcdValue};
use steadfast_targets::haproxy::Server;
use steadfast_targets::{DesiredState, Mirror};

/// Introduction.
#[rustfmt::skip]
async fn introduction(entries: BTreeMap<String, Server>, informer_is_stale: bool) -> Result<(), Box<dyn Error>> {
    use steadfast_targets::haproxy::{Haproxy, Server};
    use steadfast_targets::{MirrorMemory, Mirror, MirrorSettings, DesiredState};

    let target = Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-")?;
    let mirror = Mirror::start("web", target, MirrorSettings::default(), MirrorMemory::open(Path::new("mirrors"))?);
    // All entries, whenever they change.
    mirror.set_desired(DesiredState { doubt: informer_is_stale.then(|| "the cache is stale".into()), ..DesiredState::new(entries) });
    Ok(())
}

/// "HAProxy".
#[rustfmt::skip]
fn haproxy() -> Result<(), Box<dyn Error>> {
    use steadfast_targets::haproxy::{Haproxy, entry_name};

    let target = Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-")?.server_options("check inter 2s fall 2".parse()?);
    let name = entry_name("sf-", "cluster-1/shop/web-1");
    Ok(())
}

/// "A DNS zone".
#[rustfmt::skip]
fn dns(mirror: &Mirror<DnsRecord>) -> Result<(), Box<dyn Error>> {
    use steadfast_targets::dns::{DnsRecord, RecordData, Zone, entry};

    let target = Zone::new("192.0.2.53", "example.org", "hmac-sha256:mirror:SECRET".parse()?, "cluster-1")?;
    let web = DnsRecord { name: "web.example.org".into(), ttl: 30, data: RecordData::read("A", "10.0.0.1")? };
    mirror.set_desired(DesiredState::new(BTreeMap::from([entry("example.org", web)?])));
    Ok(())
}

/// "Keys of etcd".
#[rustfmt::skip]
fn etcd(mirror: &Mirror<EtcdValue>) -> Result<(), Box<dyn Error>> {
    let target = Etcd::new(&["http://10.0.0.1:2379", "http://10.0.0.2:2379"], "/services/", "cluster-1")?;
    mirror.set_desired(DesiredState::new(BTreeMap::from([("web/10.0.0.7".to_owned(), EtcdValue("{\"port\": 80}".to_owned()))])));
    Ok(())
}

/// "A registry by HTTP".
#[rustfmt::skip]
fn registry() -> Result<(), Box<dyn Error>> {
    use steadfast_targets::registry::{Layout, PlainRegistryClient, Registry};

    let layout = Layout::new("http://tree.example.test/services/{key}", "http://tree.example.test/services?of={mark}", "cluster-1");
    let target = Registry::new(PlainRegistryClient, layout)?;
    Ok(())
}
