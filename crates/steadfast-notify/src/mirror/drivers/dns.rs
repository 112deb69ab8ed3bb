//! The names of a DNS zone.

use std::path::Path;

use steadfast_outside::dns::{Data, DnsError, Key, Record, Zone, entries};

use crate::config::mirrors;
use crate::mirror::driver::{AnyDriver, Driver, Refused, ready};
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
    // An entry that is not ready has no name.
    let values = ready(move |entry| {
        let one = entries(&zone, [record(entry, ttl)?]).map_err(|error| error.to_string())?;
        one.into_iter().next().ok_or_else(|| "it gives no record".to_owned())
    });
    Ok(Box::new(Driver { target, values }))
}

fn record(entry: &Entry, unless: u32) -> Result<Record, String> {
    let text = |field| entry.text(field).unwrap_or_default();
    let ttl = if entry.has("ttl") { entry.number("ttl", 0, 0..=LONGEST)?.into() } else { unless };
    let data = Data::read(text("type"), text("data"));
    let data = data.map_err(|error| format!("the entry {:?} cannot be there: {error}", entry.key))?;
    Ok(Record { name: text("name").to_owned(), ttl, data })
}
