//! What a name has: an entry of a zone.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::Name;
use domain::base::iana::Rtype;

use super::error::DnsError;
use crate::entry::Value;

/// Before a name, the name of what says whose it is.
pub(super) const MARK: &str = "_steadfast.";

/// One record. What has three addresses is three entries, so that each of them comes and goes by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Whose it is, in full; a dot at the end changes nothing.
    pub name: String,
    /// For how many seconds it may be remembered. All records of a type that a name has must have the same.
    pub ttl: u32,
    /// What it says.
    pub data: Data,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An address.
    A(Ipv4Addr),
    /// An address of version 6.
    Aaaa(Ipv6Addr),
    /// Another name, in full. A name that has this has nothing else.
    Cname(String),
    /// Where a service is.
    Srv {
        /// Lower ones are tried first.
        priority: u16,
        /// How much of what comes it is given beside others of its priority.
        weight: u16,
        /// Its port.
        port: u16,
        /// The name of the machine, in full.
        target: String,
    },
}

impl Value for Record {
    fn place<'a>(&'a self, _name: &'a str) -> &'a str {
        &self.name
    }
}

impl Data {
    /// Reads what a zone file would have: `read("SRV", "0 5 80 a.example.org")`.
    ///
    /// # Errors
    ///
    /// Where it is of another type than A, AAAA, CNAME and SRV, or is none of its type.
    ///
    /// ```
    /// use steadfast_outside::dns::Data;
    ///
    /// assert_eq!(Data::read("A", "10.0.0.1")?, Data::A([10, 0, 0, 1].into()));
    /// assert_eq!(Data::read("srv", "0 5 80 A.example.org")?.to_string(), "SRV 0 5 80 a.example.org.");
    /// # Ok::<(), steadfast_outside::dns::DnsError>(())
    /// ```
    pub fn read(kind: &str, text: &str) -> Result<Self, DnsError> {
        let wrong = |expected: &'static str| DnsError::Data { kind: kind.to_owned(), text: text.to_owned(), expected };
        match &*kind.to_ascii_uppercase() {
            "A" => text.parse().map(Self::A).map_err(|_| wrong("an address such as 10.0.0.1")),
            "AAAA" => text.parse().map(Self::Aaaa).map_err(|_| wrong("an address such as fd00::1")),
            "CNAME" => Ok(Self::Cname(canonical(text)?)),
            "SRV" => {
                let words: Vec<_> = text.split_whitespace().collect();
                let [priority, weight, port, target] = words[..] else {
                    return Err(wrong("priority, weight, port and target, such as `0 5 80 a.example.org.`"));
                };
                let number = |word: &str| word.parse().map_err(|_| wrong("numbers from 0 to 65535 before its target"));
                Ok(Self::Srv {
                    priority: number(priority)?,
                    weight: number(weight)?,
                    port: number(port)?,
                    target: canonical(target)?,
                })
            }
            _ => Err(wrong("a type that a mirror writes: A, AAAA, CNAME or SRV")),
        }
    }

    /// The same where all that is said the same is written the same.
    fn normal(self) -> Result<Self, DnsError> {
        Ok(match self {
            Self::Cname(target) => Self::Cname(canonical(&target)?),
            Self::Srv { priority, weight, port, target } => {
                Self::Srv { priority, weight, port, target: canonical(&target)? }
            }
            address @ (Self::A(_) | Self::Aaaa(_)) => address,
        })
    }

    /// As it goes over the wire.
    pub(super) fn wire(&self) -> Result<(Rtype, Vec<u8>), DnsError> {
        Ok(match self {
            Self::A(address) => (Rtype::A, address.octets().to_vec()),
            Self::Aaaa(address) => (Rtype::AAAA, address.octets().to_vec()),
            Self::Cname(target) => (Rtype::CNAME, parsed(target)?.into_octets()),
            Self::Srv { priority, weight, port, target } => {
                let mut octets: Vec<_> = [priority, weight, port].into_iter().flat_map(|n| n.to_be_bytes()).collect();
                octets.extend(parsed(target)?.into_octets());
                (Rtype::SRV, octets)
            }
        })
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(address) => write!(f, "A {address}"),
            Self::Aaaa(address) => write!(f, "AAAA {address}"),
            Self::Cname(target) => write!(f, "CNAME {target}"),
            Self::Srv { priority, weight, port, target } => write!(f, "SRV {priority} {weight} {port} {target}"),
        }
    }
}

/// What the entry of `record` is called: so that of the same name another target, or another weight, is a change, and not one that goes
/// and one that comes.
pub(super) fn entry_name(record: &Record) -> String {
    match &record.data {
        data @ (Data::A(_) | Data::Aaaa(_)) => format!("{} {data}", record.name),
        Data::Cname(_) => format!("{} CNAME", record.name),
        Data::Srv { port, target, .. } => format!("{} SRV {port} {target}", record.name),
    }
}

/// `records` by the names of their entries, which are for people. What is in there more than once is there once, and what has to have
/// one TTL has the shortest.
///
/// # Errors
///
/// Where a name is none, or not in `zone`, or a mirror's own; where a name has two targets, or a target and something else.
pub fn entries(zone: &str, records: impl IntoIterator<Item = Record>) -> Result<BTreeMap<String, Record>, DnsError> {
    let zone = canonical(zone)?;
    let mut entries: BTreeMap<String, Record> = BTreeMap::new();
    for Record { name, ttl, data } in records {
        let record = Record { name: within(&zone, &name)?, ttl, data: data.normal()? };
        if ttl > i32::MAX as u32 {
            return Err(DnsError::Ttl { name: record.name, ttl });
        }
        let entry = entry_name(&record);
        if let Some(other) = entries.get(&entry).filter(|other| other.data != record.data) {
            let (one, other) = (other.data.to_string(), record.data.to_string());
            return Err(DnsError::Clash { name: record.name, one, other });
        }
        entries.insert(entry, record);
    }
    let (mut shortest, mut targets) = (BTreeMap::new(), BTreeMap::new());
    for record in entries.values() {
        let ttl = shortest.entry((record.name.clone(), record.data.wire()?.0)).or_insert(record.ttl);
        *ttl = record.ttl.min(*ttl);
        if matches!(record.data, Data::Cname(_)) {
            targets.insert(record.name.clone(), record.data.to_string());
        }
    }
    for record in entries.values_mut() {
        record.ttl = shortest[&(record.name.clone(), record.data.wire()?.0)];
        let target = targets.get(&record.name).filter(|_| !matches!(record.data, Data::Cname(_)));
        if let Some(one) = target {
            let (name, one, other) = (record.name.clone(), one.clone(), record.data.to_string());
            return Err(DnsError::Clash { name, one, other });
        }
    }
    Ok(entries)
}

/// `name` as this crate writes it, if it is one that can be in `zone`.
pub(super) fn within(zone: &str, name: &str) -> Result<String, DnsError> {
    let canonical = canonical(name)?;
    let is_within =
        canonical == zone || zone == "." || canonical.strip_suffix(zone).is_some_and(|rest| rest.ends_with('.'));
    if !is_within {
        return Err(DnsError::Outside { name: canonical, zone: zone.to_owned() });
    }
    // What says whose it is has to be a name too.
    let mark = format!("{MARK}{canonical}");
    if canonical.starts_with(MARK) || parsed(&mark).is_err() {
        let why = format!("{MARK}NAME says of each name whose it is");
        return Err(DnsError::Name { name: canonical, why });
    }
    Ok(canonical)
}

/// In small letters, with a dot at the end.
pub(super) fn canonical(name: &str) -> Result<String, DnsError> {
    let mut name = parsed(name)?;
    name.make_canonical();
    Ok(name.fmt_with_dot().to_string())
}

pub(super) fn parsed(name: &str) -> Result<Name<Vec<u8>>, DnsError> {
    Name::vec_from_str(name).map_err(|why| DnsError::Name { name: name.to_owned(), why: why.to_string() })
}
