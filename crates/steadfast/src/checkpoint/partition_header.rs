//! Header of an informer's partition in a checkpoint.

use steadfast_core::ResourceVersion;

/// Properties of a stored state. A later run uses the state only if the run has equal properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// URL of the server.
    pub(super) server: String,
    /// Stored form of the objects.
    pub(super) form: String,
}

/// Header of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionHeader {
    pub(super) terms: Terms,
    /// Cluster of the server, if known.
    pub(super) cluster: Option<String>,
    pub(super) version: ResourceVersion,
    /// Identifier of this state, unique among the states that the informer has written to the partition.
    pub(super) mark: u64,
}

/// Number of rows and sum of their checksums, to detect lost or foreign rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) checksums: u64,
}

impl Sum {
    pub(super) fn add(&mut self, checksum: u32) {
        self.rows = self.rows.wrapping_add(1);
        // A sum does not depend on the order of the rows, so each write updates it without reading the other rows.
        self.checksums = self.checksums.wrapping_add(u64::from(checksum));
    }

    pub(super) fn subtract(&mut self, checksum: u32) {
        self.rows = self.rows.wrapping_sub(1);
        self.checksums = self.checksums.wrapping_sub(u64::from(checksum));
    }
}

/// Format version of partitions and rows. Every change of the format must increment it.
const FORMAT: u32 = 3;

/// Oldest readable format version. Format 2 lacks the version of the first pending change in rows of deliveries.
const OLDEST_READABLE_FORMAT: u32 = 2;

/// Reason that a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// The format version belongs to another release of this library.
    Format(u32),
    Damaged,
}

impl PartitionHeader {
    pub(super) fn write(&self, sum: Sum) -> Vec<u8> {
        let Self { terms: Terms { server, form }, cluster, version, mark } = self;
        let mut out = FORMAT.to_le_bytes().to_vec();
        for text in [server, form, cluster.as_deref().unwrap_or_default(), version.as_str()] {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out.extend(mark.to_le_bytes());
        out.extend(sum.rows.to_le_bytes());
        out.extend(sum.checksums.to_le_bytes());
        let checksum = crc32fast::hash(&out);
        out.extend(checksum.to_le_bytes());
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Result<(Self, Sum), HeaderError> {
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(HeaderError::Damaged)?;
        // The checksum comes before the format: a damaged header must not be reported as a header of another release.
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(HeaderError::Damaged);
        }
        let (format, mut rest) = body.split_first_chunk::<4>().ok_or(HeaderError::Damaged)?;
        let format = u32::from_le_bytes(*format);
        if !(OLDEST_READABLE_FORMAT..=FORMAT).contains(&format) {
            return Err(HeaderError::Format(format));
        }
        let mut text = || text(&mut rest).ok_or(HeaderError::Damaged);
        let terms = Terms { server: text()?, form: text()? };
        let cluster = Some(text()?).filter(|cluster| !cluster.is_empty());
        let version = ResourceVersion::from(text()?.as_str());
        let mut number = || number(&mut rest).ok_or(HeaderError::Damaged);
        let mark = number()?;
        let sum = Sum { rows: number()?, checksums: number()? };
        if rest.is_empty() { Ok((Self { terms, cluster, version, mark }, sum)) } else { Err(HeaderError::Damaged) }
    }
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (text, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = behind;
    String::from_utf8(text.to_vec()).ok()
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_format_two_is_read() {
        let terms = Terms { server: "https://here".to_owned(), form: "lazy".to_owned() };
        let header = PartitionHeader { terms, cluster: None, version: "7".into(), mark: 3 };
        let sum = Sum { rows: 1, checksums: 5 };
        let in_format = |format: u32| {
            let mut bytes = header.write(sum);
            bytes[..4].copy_from_slice(&format.to_le_bytes());
            let body = bytes.len() - 4;
            let checksum = crc32fast::hash(&bytes[..body]);
            bytes[body..].copy_from_slice(&checksum.to_le_bytes());
            PartitionHeader::read(&bytes)
        };
        for format in [2, 3] {
            assert_eq!(in_format(format), Ok((header.clone(), sum)));
        }
        for format in [1, 4] {
            assert_eq!(in_format(format), Err(HeaderError::Format(format)));
        }
    }
}
