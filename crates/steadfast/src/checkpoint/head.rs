//! What is said of one informer's part of a checkpoint.

use steadfast_core::ResourceVersion;

/// What has to be the same in two lives of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The server's URL.
    pub(super) server: String,
    /// What is kept of the objects.
    pub(super) form: String,
}

/// The head of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) terms: Terms,
    /// The cluster that the server was of, where that is known.
    pub(super) cluster: Option<String>,
    pub(super) version: ResourceVersion,
    /// What tells this state of the part from all others that its informer has written.
    pub(super) mark: u64,
}

/// How many rows there are, and the sum of their checksums: a row that was lost, or that came from elsewhere, shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    pub(super) checksums: u64,
}

impl Sum {
    pub(super) fn add(&mut self, checksum: u32) {
        self.rows = self.rows.wrapping_add(1);
        self.checksums = self.checksums.wrapping_add(u64::from(checksum));
    }

    pub(super) fn subtract(&mut self, checksum: u32) {
        self.rows = self.rows.wrapping_sub(1);
        self.checksums = self.checksums.wrapping_sub(u64::from(checksum));
    }
}

/// How parts and rows are written. Whatever changes that changes this.
const FORMAT: u32 = 2;

/// Why a head cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is of another version of this library.
    Format(u32),
    Damaged,
}

impl Head {
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

    pub(super) fn read(bytes: &[u8]) -> Result<(Self, Sum), Unreadable> {
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(Unreadable::Damaged)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(Unreadable::Damaged);
        }
        let (format, mut rest) = body.split_first_chunk::<4>().ok_or(Unreadable::Damaged)?;
        match u32::from_le_bytes(*format) {
            FORMAT => {}
            other => return Err(Unreadable::Format(other)),
        }
        let mut text = || text(&mut rest).ok_or(Unreadable::Damaged);
        let terms = Terms { server: text()?, form: text()? };
        let cluster = Some(text()?).filter(|cluster| !cluster.is_empty());
        let version = ResourceVersion::from(text()?.as_str());
        let mut number = || number(&mut rest).ok_or(Unreadable::Damaged);
        let mark = number()?;
        let sum = Sum { rows: number()?, checksums: number()? };
        if rest.is_empty() { Ok((Self { terms, cluster, version, mark }, sum)) } else { Err(Unreadable::Damaged) }
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
