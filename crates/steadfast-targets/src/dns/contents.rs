//! Contents of a zone, and the owner of each name and record.

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::Rtype;
use domain::base::wire::ParseError;
use domain::base::{ParsedRecord, Serial, ToName, Ttl};
use domain::dep::octseq::Octets;
use domain::rdata::{A, Aaaa, Cname, Mx, Ptr, Soa, Srv, Txt};

use super::record::{DnsRecord, MARK_LABEL, OWNER_LABEL, RecordData, entry_name, record_hash};
use crate::entry::ActualState;

/// All contents of a zone.
#[derive(Default)]
pub(super) struct TransferredZone {
    names: BTreeMap<String, NameRecords>,
    serial: Option<u32>,
}

/// Records of one name, of the types that mirrors write. A name with only other types also counts as used.
#[derive(Default)]
struct NameRecords {
    records: Vec<DnsRecord>,
}

impl NameRecords {
    /// Returns true if `mark` is the only TXT record of the name.
    fn has_single_text(&self, mark: &str) -> bool {
        // Other record types next to the mark do not matter. A second TXT record would make the owner ambiguous.
        let mut texts = self.records.iter().filter_map(|record| match &record.data {
            RecordData::Txt(strings) => Some(strings.concat()),
            _ => None,
        });
        texts.next().is_some_and(|text| text == mark.as_bytes()) && texts.next().is_none()
    }
}

/// Contents of the zone at the last read, as far as they affect changes.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneContents {
    pub(super) own: BTreeMap<String, DnsRecord>,
    /// Names with the mark, including names without entries.
    pub(super) marked: BTreeSet<String>,
    /// Name and hash of each record mark, including marks whose record does not exist.
    pub(super) records: BTreeSet<(String, String)>,
    /// Foreign records, by name, at names where the mirror has, or may have, its own records.
    pub(super) foreign: BTreeMap<String, Vec<DnsRecord>>,
    /// Serial number of the zone.
    pub(super) serial: Option<u32>,
}

impl TransferredZone {
    pub(super) fn add<Octs: Octets>(&mut self, record: &ParsedRecord<'_, Octs>) -> Result<(), ParseError> {
        if let Some(serial) = parse_serial(record)? {
            self.serial = Some(serial);
        }
        let name = lowercase_name(&record.owner());
        let owner = self.names.entry(name.clone()).or_default();
        let ttl = Ttl::as_secs(&record.ttl());
        owner.records.extend(parse_data(record)?.map(|data| DnsRecord { name, ttl, data }));
        Ok(())
    }

    /// Splits the contents of `zone` into entries with the mark `mark` and foreign names.
    pub(super) fn split(self, zone: &str, mark: &str) -> (ActualState<DnsRecord>, ZoneContents) {
        let Self { names, serial } = self;
        let mut others = BTreeSet::new();
        let mut contents = ZoneContents { serial, ..ZoneContents::default() };
        for (name, owner) in &names {
            let is_own = owner.has_single_text(mark);
            if let Some(marked) = name.strip_prefix(MARK_LABEL) {
                if is_own {
                    contents.marked.insert(marked.to_owned());
                } else {
                    // The mark of another mirror reserves the name, even if the name has no records.
                    others.insert(marked.to_owned());
                }
            } else if let Some((hash, marked)) =
                // `HASH._steadfast.NAME` is the mark of a single record; `_steadfast.NAME` is the mark of a whole name.
                name.split_once('.').and_then(|(hash, rest)| Some((hash, rest.strip_prefix(MARK_LABEL)?)))
            {
                if is_own {
                    contents.records.insert((marked.to_owned(), hash.to_owned()));
                }
            } else if !name.contains(&format!(".{OWNER_LABEL}")) {
                others.insert(name.clone());
            }
        }
        // The apex always has foreign records, so each record of the mirror has its own mark there.
        others.remove(zone);
        contents.marked.remove(zone);
        others.retain(|name| !contents.marked.contains(name));
        for record in names.into_values().flat_map(|owner| owner.records) {
            let (is_apex, is_marked) = (record.name == zone, contents.marked.contains(&record.name));
            if !is_apex && !is_marked {
                continue;
            }
            // Names can share TXT, MX and PTR records with other clients. Only a mark per record distinguishes the
            // owners.
            let has_own_mark = is_apex || record.data.may_share_name();
            if has_own_mark && !contents.records.contains(&(record.name.clone(), record_hash(&record))) {
                contents.foreign.entry(record.name.clone()).or_default().push(record);
                continue;
            }
            let entry = entry_name(&record);
            // Another client added a second record of the same service. This record gets its own entry name, so that
            // the mirror removes the record.
            let entry =
                if contents.own.contains_key(&entry) { format!("{} {}", record.name, record.data) } else { entry };
            contents.own.insert(entry, record);
        }
        (ActualState { own: contents.own.clone(), others, busy: BTreeSet::new() }, contents)
    }
}

/// Returns the data of a record, if a mirror writes records of its type.
pub(super) fn parse_data<Octs: Octets>(record: &ParsedRecord<'_, Octs>) -> Result<Option<RecordData>, ParseError> {
    Ok(match record.rtype() {
        Rtype::A => record.to_record::<A>()?.map(|record| RecordData::A(record.data().addr())),
        Rtype::AAAA => record.to_record::<Aaaa>()?.map(|record| RecordData::Aaaa(record.data().addr())),
        Rtype::CNAME => {
            record.to_record::<Cname<_>>()?.map(|record| RecordData::Cname(lowercase_name(record.data().cname())))
        }
        Rtype::PTR => {
            record.to_record::<Ptr<_>>()?.map(|record| RecordData::Ptr(lowercase_name(record.data().ptrdname())))
        }
        Rtype::MX => record.to_record::<Mx<_>>()?.map(|record| {
            let mx = record.data();
            RecordData::Mx { preference: mx.preference(), exchange: lowercase_name(mx.exchange()) }
        }),
        Rtype::SRV => record.to_record::<Srv<_>>()?.map(|record| {
            let srv = record.data();
            let (priority, weight, port) = (srv.priority(), srv.weight(), srv.port());
            RecordData::Srv { priority, weight, port, target: lowercase_name(srv.target()) }
        }),
        Rtype::TXT => {
            let record = record.to_record::<Txt<_>>()?;
            record.map(|record| RecordData::Txt(record.data().iter().map(<[u8]>::to_vec).collect()))
        }
        _ => None,
    })
}

/// Returns the serial number, if the record is a SOA.
pub(super) fn parse_serial<Octs: Octets>(record: &ParsedRecord<'_, Octs>) -> Result<Option<u32>, ParseError> {
    if record.rtype() != Rtype::SOA {
        return Ok(None);
    }
    let soa = record.to_record::<Soa<_>>()?;
    Ok(soa.map(|record| Serial::into_int(record.data().serial())))
}

fn lowercase_name(name: &impl ToName) -> String {
    // DNS compares names without case (RFC 4343). Servers return the spelling of the first writer.
    name.fmt_with_dot().to_string().to_ascii_lowercase()
}
