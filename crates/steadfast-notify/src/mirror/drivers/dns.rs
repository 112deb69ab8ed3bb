//! Driver for names of DNS zones.

use std::path::Path;

use steadfast_targets::dns::{DnsError, DnsRecord, RecordData, TsigKey, Zone, Zones};

use crate::config::mirrors;
use crate::entry_fields::{EntryFields, FieldKind, KEY, READY, optional, required};
use crate::mirror::driver::{AnyDriver, Driver, OpenError, ready_entries};
use crate::mirror::entry::Entry;
use crate::secret::Secret;

pub(crate) const ENTRY_FIELDS: EntryFields = &[
    KEY,
    required("name", FieldKind::Text),
    required("type", FieldKind::Text),
    required("data", FieldKind::Text),
    optional("ttl", FieldKind::Number),
    READY,
];

/// Maximum TTL, in seconds (RFC 2181, section 8).
const MAX_TTL: u32 = i32::MAX as u32;

pub(super) fn open(config: &mirrors::DnsConfig, folder: &Path) -> Result<Box<dyn AnyDriver>, OpenError> {
    let remedy = "store the key there as `ALGORITHM:NAME:SECRET`, or correct the reference";
    let secret_error =
        |reason: &dyn std::fmt::Display| OpenError::new("dns.secret", reason, remedy).with_external_cause();
    let secret = Secret::read(&config.secret, folder).map_err(|reason| secret_error(&reason))?;
    let key = secret.text().ok_or_else(|| secret_error(&"the key is not UTF-8"))?.parse::<TsigKey>();
    let key = key.map_err(|error| secret_error(&error))?;
    let config_error = |error| {
        let field = if matches!(error, DnsError::Mark(_)) { "dns.mark" } else { "dns.zone" };
        OpenError::new(field, error, "write the name fully qualified, as in zone files")
    };
    if config.ttl > MAX_TTL {
        let description = format!("the TTL {} is longer than {MAX_TTL} seconds", config.ttl);
        return Err(OpenError::new("dns.ttl", description, "use a shorter TTL"));
    }
    let zones = config.zone.names().iter().map(|zone| Zone::new(&config.server, zone, key.clone(), &config.mark));
    let zones = zones.collect::<Result<Vec<_>, _>>().and_then(Zones::new).map_err(config_error)?;
    let (target, ttl) = (zones.clone(), config.ttl);
    // DNS has no disabled records: an entry that is not ready has no record.
    let convert_entry = ready_entries(move |entry| zones.entry(record(entry, ttl)?).map_err(|error| error.to_string()));
    Ok(Box::new(Driver { target, convert_entry }))
}

/// Converts an entry to a record. `default` is the TTL for entries without `ttl`.
fn record(entry: &Entry, default: u32) -> Result<DnsRecord, String> {
    let text = |field| entry.text(field).unwrap_or_default();
    let ttl = if entry.has_field("ttl") { ttl(entry)? } else { default };
    let data = RecordData::read(text("type"), text("data")).map_err(|error| error.to_string())?;
    Ok(DnsRecord { name: text("name").to_owned(), ttl, data })
}

/// Returns the TTL of an entry. A CEL number may be a float in JSON.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
fn ttl(entry: &Entry) -> Result<u32, String> {
    let value = entry.value("ttl");
    let fraction = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=f64::from(MAX_TTL)).contains(number));
    fraction.map(|number| number as u32).ok_or_else(|| format!("`ttl` is not from 0 to {MAX_TTL} seconds"))
}
