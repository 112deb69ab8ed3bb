//! The names of a DNS zone.

use std::collections::BTreeMap;
use std::path::Path;

use steadfast_outside::dns::{Data, DnsError, Key, Record, Zone, entries};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, Refused};
use crate::mirror::entry::Entry;
use crate::secret::Secret;
use crate::shape::{FieldKind, KEY, READY, Shape, needed, optional};

pub(crate) const SHAPE: Shape = &[
    KEY,
    needed("name", FieldKind::Text),
    needed("type", FieldKind::Text),
    needed("data", FieldKind::Text),
    optional("ttl", FieldKind::Number),
    READY,
];

/// The longest time that fits into a record that says so itself.
const LONGEST: u16 = u16::MAX;

pub(super) fn open(config: &mirrors::Dns, folder: &Path) -> Result<Box<dyn AnyDriver>, Refused> {
    let remedy = "put it there as `ALGORITHM:NAME:SECRET`, or say where else it is";
    let secret = Secret::read(&config.secret, folder).map_err(|why| Refused::at("dns.secret", why, remedy))?;
    let key = secret.text().ok_or_else(|| Refused::at("dns.secret", "it is no text", remedy))?.parse::<Key>();
    let key = key.map_err(|error| Refused::at("dns.secret", error, remedy))?;
    let target = Zone::new(&config.server, &config.zone, key, &config.mark).map_err(|error| {
        let field = if matches!(error, DnsError::Mark(_)) { "dns.mark" } else { "dns.zone" };
        Refused::at(field, error, "write it as zone files do, and in full")
    })?;
    let (zone, ttl) = (config.zone.clone(), config.ttl);
    let values = move |all: &BTreeMap<String, Entry>| {
        // What is not ready has no name.
        let ready = all.values().filter(|entry| entry.is_ready);
        let records: Result<Vec<Record>, String> = ready.map(|entry| record(entry, ttl)).collect();
        match records.and_then(|records| entries(&zone, records).map_err(|error| error.to_string())) {
            Ok(records) => (records, None),
            Err(why) => (BTreeMap::new(), Some(why)),
        }
    };
    Ok(Box::new(Driver { target, values: Box::new(values) }))
}

fn record(entry: &Entry, unless: u32) -> Result<Record, String> {
    let text = |field| entry.text(field).unwrap_or_default();
    let ttl = if entry.has("ttl") { entry.number("ttl", 0, 0..=LONGEST)?.into() } else { unless };
    let data = Data::read(text("type"), text("data"));
    let data = data.map_err(|error| format!("the entry {:?} cannot be there: {error}", entry.key))?;
    Ok(Record { name: text("name").to_owned(), ttl, data })
}
