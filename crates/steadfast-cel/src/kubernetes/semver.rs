//! Semantic versions.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Requirement of a version.
pub(crate) const SEMVER_SYNTAX: &str = "a version must be a semantic version such as `1.2.3-alpha.1+build`";

/// Semantic version. Metadata of the build does not count and is not kept.
#[derive(Clone, Debug)]
pub(crate) struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pre_release: Vec<Identifier>,
    bytes: usize,
}

/// Part of a pre-release. Numbers sort before names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Name(Box<str>),
}

impl Semver {
    /// Parses a version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parse_number(parts.next()?)?, parse_number(parts.next()?)?, parts.next()?);
        // Build metadata is split off first: it may contain dashes, which do not start a pre-release.
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre_release) = match rest.split_once('-') {
            Some((patch, pre_release)) => (parse_number(patch)?, Some(pre_release)),
            None => (parse_number(rest)?, None),
        };
        if !build.is_none_or(|build| build.split('.').all(is_identifier)) {
            return None;
        }
        let identifiers = pre_release.into_iter().flat_map(|text| text.split('.')).map(|part| {
            // Numeric identifiers must not have leading zeros (semver.org, item 9).
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                return parse_number(part).map(Identifier::Number);
            }
            is_identifier(part).then(|| Identifier::Name(part.into()))
        });
        let pre_release = identifiers.collect::<Option<Vec<_>>>()?;
        Some(Self { major, minor, patch, pre_release, bytes: text.len() })
    }

    /// Parses a version that may start with `v`, have leading zeros, and lack the minor version and the patch.
    pub(crate) fn parse_normalized(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<Cow<'_, str>> = text.splitn(3, '.').map(without_leading_zeros).collect();
        // A pre-release needs all three numbers, since `1-alpha` would otherwise become `1-alpha.0.0`.
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        while parts.len() < 3 {
            parts.push(Cow::Borrowed("0"));
        }
        Self::parse(&parts.join("."))
    }

    /// Compares two versions by precedence.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                // A version without a pre-release is newer than the same version with one (semver.org, item 11).
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => self.pre_release.cmp(&other.pre_release),
            }
        })
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn without_leading_zeros(part: &str) -> Cow<'_, str> {
    if part.len() < 2 {
        return part.into();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|character: char| character.is_ascii_digit()) {
        stripped.into()
    } else {
        format!("0{stripped}").into()
    }
}

/// Parses a number without a sign and leading zeros.
fn parse_number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if is_number { text.parse().ok() } else { None }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric())
}
