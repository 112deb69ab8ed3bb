//! Records of a zone. Each record is one entry.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::Name;
use domain::base::iana::Rtype;
use sha2::{Digest, Sha256};

use super::error::DnsError;
use crate::entry::EntryValue;

/// Label of the names at which marks lie: `_steadfast.NAME` for a name, `HASH._steadfast.NAME` for one record of a
/// name.
pub(super) const MARK_LABEL: &str = "_steadfast.";

/// Label of the names at which ownership records lie.
pub(super) const OWNER_LABEL: &str = "_steadfast-owner.";

/// Upper bound of the text of a TXT record, in bytes.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// Upper bound of a record's data within the name of its entry, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Single record. A name with three addresses has three entries, which are added and removed independently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsRecord {
    /// Name of the record, in full; a dot at the end is optional.
    pub name: String,
    /// Maximum time that the record may be cached, in seconds: 0 to 2147483647. All records of one name and type must
    /// have the same TTL.
    pub ttl: u32,
    /// Type and data of the record.
    pub data: RecordData,
}

/// Type and data of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordData {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// Another name, in full. A name with a CNAME has no other record.
    Cname(String),
    /// Location of a service.
    Srv {
        /// Servers with the lowest number are tried first.
        priority: u16,
        /// Share of the requests among servers of one priority.
        weight: u16,
        /// Port of the service.
        port: u16,
        /// Name of the server, in full.
        target: String,
    },
    /// Text, in strings of up to 255 bytes.
    Txt(Vec<Vec<u8>>),
    /// A mail server.
    Mx {
        /// Servers with the lowest number are tried first.
        preference: u16,
        /// Name of the server, in full.
        exchange: String,
    },
    /// The name of an address, in full.
    Ptr(String),
}

impl EntryValue for DnsRecord {
    fn location<'a>(&'a self, _name: &'a str) -> &'a str {
        &self.name
    }
}

impl RecordData {
    /// Reads data in the syntax of zone files: `read("SRV", "0 5 80 a.example.org")`. The text of a TXT record may
    /// also be written without quotes. Such text is one string, including its spaces.
    ///
    /// # Errors
    ///
    /// Returns an error if the type is none of A, AAAA, CNAME, SRV, TXT, MX and PTR, or if its data is invalid.
    ///
    /// ```
    /// use steadfast_targets::dns::RecordData;
    ///
    /// assert_eq!(RecordData::read("A", "10.0.0.1")?, RecordData::A([10, 0, 0, 1].into()));
    /// assert_eq!(RecordData::read("srv", "0 5 80 A.example.org")?.to_string(), "SRV 0 5 80 a.example.org.");
    /// assert_eq!(RecordData::read("TXT", "v=spf1 -all")?.to_string(), "TXT \"v=spf1 -all\"");
    /// # Ok::<(), steadfast_targets::dns::DnsError>(())
    /// ```
    pub fn read(kind: &str, text: &str) -> Result<Self, DnsError> {
        let invalid =
            |expected: &'static str| DnsError::Data { kind: kind.to_owned(), text: text.to_owned(), expected };
        match &*kind.to_ascii_uppercase() {
            "A" => text.parse().map(Self::A).map_err(|_| invalid("an address such as 10.0.0.1")),
            "AAAA" => text.parse().map(Self::Aaaa).map_err(|_| invalid("an address such as fd00::1")),
            "CNAME" => Ok(Self::Cname(canonical_name(text)?)),
            "PTR" => Ok(Self::Ptr(canonical_name(text)?)),
            "SRV" => {
                let parts: Vec<_> = text.split_whitespace().collect();
                let [priority, weight, port, target] = parts[..] else {
                    return Err(invalid("priority, weight, port and target, such as `0 5 80 a.example.org.`"));
                };
                let number =
                    |part: &str| part.parse().map_err(|_| invalid("numbers from 0 to 65535 before its target"));
                Ok(Self::Srv {
                    priority: number(priority)?,
                    weight: number(weight)?,
                    port: number(port)?,
                    target: canonical_name(target)?,
                })
            }
            "MX" => {
                let parts: Vec<_> = text.split_whitespace().collect();
                let [preference, exchange] = parts[..] else {
                    return Err(invalid("preference and server, such as `10 mx.example.org.`"));
                };
                let preference =
                    preference.parse().map_err(|_| invalid("a number from 0 to 65535 before its server"))?;
                Ok(Self::Mx { preference, exchange: canonical_name(exchange)? })
            }
            "TXT" => {
                let strings =
                    if text.starts_with('"') { parse_quoted(text) } else { Some(split_text(text.as_bytes())) };
                let data =
                    Self::Txt(strings.ok_or_else(|| invalid("a text, or strings in quotes of up to 255 bytes"))?);
                data.check_limits(invalid)
            }
            _ => Err(invalid("a type that a mirror writes: A, AAAA, CNAME, SRV, TXT, MX or PTR")),
        }
    }

    fn check_limits(self, invalid: impl Fn(&'static str) -> DnsError) -> Result<Self, DnsError> {
        match &self {
            Self::Txt(strings) if strings.iter().map(Vec::len).sum::<usize>() > MAX_TEXT_BYTES => {
                Err(invalid("a text of up to 8 KiB"))
            }
            Self::Txt(strings) if strings.is_empty() || strings.iter().any(|string| string.len() > 255) => {
                Err(invalid("at least one string, each of up to 255 bytes"))
            }
            _ => Ok(self),
        }
    }

    /// Returns the data in canonical form for comparisons.
    fn with_canonical_names(self) -> Result<Self, DnsError> {
        Ok(match self {
            Self::Cname(target) => Self::Cname(canonical_name(&target)?),
            Self::Ptr(target) => Self::Ptr(canonical_name(&target)?),
            Self::Mx { preference, exchange } => Self::Mx { preference, exchange: canonical_name(&exchange)? },
            Self::Srv { priority, weight, port, target } => {
                Self::Srv { priority, weight, port, target: canonical_name(&target)? }
            }
            other @ (Self::A(_) | Self::Aaaa(_) | Self::Txt(_)) => other,
        })
    }

    /// Returns type and data in the wire format.
    pub(super) fn to_wire(&self) -> Result<(Rtype, Vec<u8>), DnsError> {
        Ok(match self {
            Self::A(address) => (Rtype::A, address.octets().to_vec()),
            Self::Aaaa(address) => (Rtype::AAAA, address.octets().to_vec()),
            Self::Cname(target) => (Rtype::CNAME, parse_name(target)?.into_octets()),
            Self::Ptr(target) => (Rtype::PTR, parse_name(target)?.into_octets()),
            Self::Srv { priority, weight, port, target } => {
                let mut octets: Vec<_> = [priority, weight, port].into_iter().flat_map(|n| n.to_be_bytes()).collect();
                octets.extend(parse_name(target)?.into_octets());
                (Rtype::SRV, octets)
            }
            Self::Mx { preference, exchange } => {
                (Rtype::MX, [&preference.to_be_bytes()[..], &parse_name(exchange)?.into_octets()].concat())
            }
            Self::Txt(strings) => (Rtype::TXT, text_octets(strings)),
        })
    }

    /// Returns true if other clients may have records of this type at a name of the mirror. Each such record of the
    /// mirror has its own mark.
    pub(super) fn may_share_name(&self) -> bool {
        matches!(self, Self::Txt(_) | Self::Mx { .. } | Self::Ptr(_))
    }
}

/// Returns strings as the data of a TXT record. Strings of more than 255 bytes were rejected before.
pub(super) fn text_octets(strings: &[Vec<u8>]) -> Vec<u8> {
    // A character string of RFC 1035 has a length byte before its content of at most 255 bytes.
    let octets = strings.iter().flat_map(|string| {
        let length = u8::try_from(string.len()).unwrap_or(u8::MAX);
        std::iter::once(length).chain(string.iter().copied().take(usize::from(length)))
    });
    octets.collect()
}

fn split_text(text: &[u8]) -> Vec<Vec<u8>> {
    if text.is_empty() { vec![Vec::new()] } else { text.chunks(255).map(<[u8]>::to_vec).collect() }
}

/// Reads strings in quotes with the escapes of zone files: `\"`, `\\` and `\DDD`.
fn parse_quoted(text: &str) -> Option<Vec<Vec<u8>>> {
    let (mut strings, mut bytes) = (Vec::new(), text.bytes().peekable());
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        match bytes.next() {
            None => return Some(strings),
            Some(b'"') => {}
            Some(_) => return None,
        }
        let mut string = Vec::new();
        loop {
            match bytes.next()? {
                b'"' => break,
                b'\\' => match bytes.next()? {
                    first if first.is_ascii_digit() => {
                        // Master files write a byte as `\DDD`, with three decimal digits (RFC 1035, section 5.1).
                        let digits = [first, bytes.next()?, bytes.next()?];
                        string.push(std::str::from_utf8(&digits).ok()?.parse().ok()?);
                    }
                    escaped => string.push(escaped),
                },
                byte => string.push(byte),
            }
        }
        strings.push(string);
    }
}

impl fmt::Display for RecordData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::A(address) => write!(f, "A {address}"),
            Self::Aaaa(address) => write!(f, "AAAA {address}"),
            Self::Cname(target) => write!(f, "CNAME {target}"),
            Self::Ptr(target) => write!(f, "PTR {target}"),
            Self::Mx { preference, exchange } => write!(f, "MX {preference} {exchange}"),
            Self::Srv { priority, weight, port, target } => write!(f, "SRV {priority} {weight} {port} {target}"),
            Self::Txt(strings) => {
                f.write_str("TXT")?;
                strings.iter().try_for_each(|string| {
                    f.write_str(" \"")?;
                    string.iter().try_for_each(|byte| match byte {
                        b'"' | b'\\' => write!(f, "\\{}", char::from(*byte)),
                        b' '..=b'~' => f.write_char(char::from(*byte)),
                        _ => write!(f, "\\{byte:03}"),
                    })?;
                    f.write_char('"')
                })
            }
        }
    }
}

/// Returns the name of the entry for `record`. A changed weight, preference or CNAME target changes the value of the
/// entry, instead of removing one entry and adding another.
pub(super) fn entry_name(record: &DnsRecord) -> String {
    match &record.data {
        data @ (RecordData::A(_) | RecordData::Aaaa(_) | RecordData::Ptr(_)) => format!("{} {data}", record.name),
        RecordData::Cname(_) => format!("{} CNAME", record.name),
        RecordData::Srv { port, target, .. } => format!("{} SRV {port} {target}", record.name),
        RecordData::Mx { exchange, .. } => format!("{} MX {exchange}", record.name),
        data @ RecordData::Txt(_) => {
            // A short text is used unchanged. A long text is cut and gets a hash, because names appear in logs.
            let text = data.to_string();
            if text.len() <= MAX_SHOWN_CHARS {
                return format!("{} {text}", record.name);
            }
            format!("{} {}… {}", record.name, &text[..MAX_SHOWN_CHARS], record_hash(record))
        }
    }
}

/// Returns a hash of type and data: the label of the mark of a single record. 128 bits of SHA-256 make collisions
/// infeasible.
pub(super) fn record_hash(record: &DnsRecord) -> String {
    // `to_wire` fails only for invalid names, and such names were rejected when the data was parsed.
    let (kind, octets) = record.data.to_wire().unwrap_or((Rtype::NULL, Vec::new()));
    short_hash(&Sha256::new().chain_update(kind.to_int().to_be_bytes()).chain_update(octets).finalize())
}

/// Returns the first 128 bits of a hash as a label.
pub(super) fn short_hash(digest: &[u8]) -> String {
    digest.iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the name at which the mark of a single record lies.
pub(super) fn record_mark(name: &str, record_hash: &str) -> String {
    format!("{record_hash}.{MARK_LABEL}{name}")
}

/// Returns the canonical record and the name of its entry.
///
/// # Errors
///
/// Returns an error if the name is not a domain name, is not in `zone`, or is reserved for marks. Also returns an
/// error if the data or the TTL is not valid.
pub fn entry(zone: &str, record: DnsRecord) -> Result<(String, DnsRecord), DnsError> {
    let DnsRecord { name, ttl, data } = record;
    let record =
        DnsRecord { name: canonical_within(&canonical_name(zone)?, &name)?, ttl, data: data.with_canonical_names()? };
    if ttl > i32::MAX as u32 {
        return Err(DnsError::Ttl { name: record.name, ttl });
    }
    let (name, text) = (&record.name, record.data.to_string());
    let expected = |expected| DnsError::Data { kind: name.clone(), text: text.clone(), expected };
    record.data.clone().check_limits(expected)?;
    Ok((entry_name(&record), record))
}

/// Returns the canonical `name`, or an error if `zone` cannot contain the name.
pub(super) fn canonical_within(zone: &str, name: &str) -> Result<String, DnsError> {
    let canonical_name = canonical_name(name)?;
    if !is_within(zone, &canonical_name) {
        return Err(DnsError::Outside { name: canonical_name, zone: zone.to_owned() });
    }
    // Marks must be valid names too, and entries must not overwrite them.
    let mark = record_mark(&canonical_name, &"0".repeat(32));
    let reserved = [MARK_LABEL, OWNER_LABEL].map(|label| label.trim_end_matches('.'));
    if canonical_name.split('.').any(|label| reserved.contains(&label)) || parse_name(&mark).is_err() {
        let reason = format!(
            "{MARK_LABEL}NAME and names below it record the owner of each name, so NAME may have up to 200 bytes"
        );
        return Err(DnsError::Name { name: display_name(&canonical_name).into_owned(), reason });
    }
    Ok(canonical_name)
}

pub(super) fn is_within(zone: &str, name: &str) -> bool {
    // An escaped dot belongs to a label: `a\.example.org.` is not in `example.org.`.
    let ends_with_label = |rest: &str| {
        let backslashes = rest.len() - rest.trim_end_matches('\\').len();
        backslashes.is_multiple_of(2)
    };
    let rest = name.strip_suffix(zone).and_then(|rest| rest.strip_suffix('.'));
    name == zone || zone == "." || rest.is_some_and(ends_with_label)
}

/// Returns a name in lower case, with a dot at the end.
pub(super) fn canonical_name(name: &str) -> Result<String, DnsError> {
    let mut name = parse_name(name)?;
    name.make_canonical();
    Ok(name.fmt_with_dot().to_string())
}

pub(super) fn parse_name(name: &str) -> Result<Name<Vec<u8>>, DnsError> {
    let invalid = |reason: String| DnsError::Name { name: display_name(name).into_owned(), reason };
    if name.is_empty() {
        return Err(invalid("it is empty".to_owned()));
    }
    if !name.is_ascii() {
        return Err(invalid("it has letters beyond ASCII: use its ASCII form (`xn--…`)".to_owned()));
    }
    Name::vec_from_str(name).map_err(|reason| invalid(reason.to_string()))
}

/// Returns the start of a name for an error message.
fn display_name(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(260) {
        Some((end, _)) => format!("{}…", &name[..end]).into(),
        None => name.into(),
    }
}
