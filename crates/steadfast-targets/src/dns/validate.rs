//! Makes entries of a zone consistent with each other: one CNAME or other records, one TTL per name and type.

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::Rtype;

use super::contents::ZoneContents;
use super::error::DnsError;
use super::record::{DnsRecord, RecordData, entry};

/// Returns `records` by the names of their entries. Duplicates become one entry. All records of one name and type get
/// the lowest TTL among them.
///
/// A single invalid record is an error for all records. A mirror therefore converts each record separately with
/// [`entry`], and leaves conflicts between records to [`Target::validate`](crate::Target::validate).
///
/// # Errors
///
/// Returns an error if a record is not valid (see [`entry`]), or if a name has two CNAMEs, or a CNAME and another
/// record.
pub fn entries(
    zone: &str,
    records: impl IntoIterator<Item = DnsRecord>,
) -> Result<BTreeMap<String, DnsRecord>, DnsError> {
    let mut entries: BTreeMap<String, DnsRecord> = BTreeMap::new();
    for record in records {
        let (name, record) = entry(zone, record)?;
        if let Some(other) = entries.get(&name).filter(|other| other.data != record.data) {
            let (first, second) = (other.data.to_string(), record.data.to_string());
            return Err(DnsError::Clash { name: record.name, first, second });
        }
        // RFC 2181, section 5.2: all records of one name and type have one TTL. The lowest desired TTL applies.
        let ttl = entries.get(&name).map_or(record.ttl, |other: &DnsRecord| other.ttl.min(record.ttl));
        entries.insert(name, DnsRecord { ttl, ..record });
    }
    let zone = super::record::canonical_name(zone)?;
    match resolve_conflicts(&zone, &mut entries, &ZoneContents::default()).into_values().next() {
        Some(error) => Err(error),
        None => Ok(entries),
    }
}

/// Removes the entries that conflict with others in the zone, and returns the reason for each. Gives all records of
/// one name and type one TTL.
pub(super) fn resolve_conflicts(
    zone: &str,
    desired: &mut BTreeMap<String, DnsRecord>,
    contents: &ZoneContents,
) -> BTreeMap<String, DnsError> {
    let mut rejected = BTreeMap::new();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (entry, record) in &*desired {
        names.entry(record.name.clone()).or_default().push(entry.clone());
    }
    for (name, entries) in names {
        let is_cname = |entry: &String| matches!(desired[entry].data, RecordData::Cname(_));
        let (aliases, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_cname);
        if name == zone {
            for entry in aliases {
                let error = DnsError::Apex { name: name.clone(), record: desired[&entry].data.to_string() };
                rejected.insert(entry, error);
            }
            continue;
        }
        if aliases.is_empty() || others.is_empty() {
            continue;
        }
        // The existing kind of records stays, because the zone keeps skipped entries unchanged.
        let exists = |entries: &[String]| entries.iter().any(|entry| contents.own.contains_key(entry));
        let (kept, dropped) = if exists(&aliases) && !exists(&others) { (aliases, others) } else { (others, aliases) };
        let first = desired[&kept[0]].data.to_string();
        for entry in dropped {
            let second = desired[&entry].data.to_string();
            rejected.insert(entry, DnsError::Clash { name: name.clone(), first: first.clone(), second });
        }
    }
    for (entry, record) in &*desired {
        // The mirror must not adopt a record of another client: it would later remove the record with its own entry.
        if contents
            .foreign
            .get(&record.name)
            .is_some_and(|records| records.iter().any(|other| other.data == record.data))
        {
            rejected
                .insert(entry.clone(), DnsError::Exists { name: record.name.clone(), record: record.data.to_string() });
        }
    }
    desired.retain(|entry, _| !rejected.contains_key(entry));
    unify_ttls(desired, contents);
    rejected
}

/// Gives all records of one name and type the lowest TTL among them, or the TTL of foreign records of that name and
/// type.
fn unify_ttls(desired: &mut BTreeMap<String, DnsRecord>, contents: &ZoneContents) {
    let kind = |record: &DnsRecord| record.data.to_wire().map_or(Rtype::NULL, |(kind, _)| kind);
    let mut lowest_ttls: BTreeMap<(String, Rtype), u32> = BTreeMap::new();
    for record in desired.values() {
        let ttl = lowest_ttls.entry((record.name.clone(), kind(record))).or_insert(record.ttl);
        *ttl = record.ttl.min(*ttl);
    }
    let names: BTreeSet<_> = lowest_ttls.keys().map(|(name, _)| name.clone()).collect();
    // All records of one name and type have one TTL, so an update could also change the TTL of foreign records. The
    // mirror adopts their TTL instead.
    for record in names.iter().filter_map(|name| contents.foreign.get(name)).flatten() {
        if let Some(ttl) = lowest_ttls.get_mut(&(record.name.clone(), kind(record))) {
            *ttl = record.ttl;
        }
    }
    for record in desired.values_mut() {
        record.ttl = lowest_ttls[&(record.name.clone(), kind(record))];
    }
}
