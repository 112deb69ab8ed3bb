//! Parser for responses of the runtime API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedServer {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) weight: u16,
    /// True if the server is neither in maintenance nor draining.
    pub(super) is_ready: bool,
    /// True if health checks are configured and not enabled.
    pub(super) is_check_disabled: bool,
}

/// Response that is not a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParseError {
    /// HAProxy returned an error text.
    ErrorResponse,
    /// List in an unknown form.
    Malformed(String),
}

/// Bits of `srv_check_state`.
const CHECK_CONFIGURED: u32 = 2;
const CHECK_ENABLED: u32 = 4;

/// Sentences that confirm a command in the runtime API. Other commands have an empty response on success.
const CONFIRMATIONS: &[&str] =
    &["IP changed", "port changed", "no need to change", ADD_CONFIRMATION, DELETE_CONFIRMATION];
const ADD_CONFIRMATION: &str = "New server registered";
const DELETE_CONFIRMATION: &str = "Server deleted";

/// Checks the response to a line of `commands`.
///
/// The runtime API has no status codes: it confirms some commands with a sentence, and others with an empty response.
///
/// # Errors
///
/// Returns the error text of HAProxy.
pub(super) fn check_confirmations(commands: &[String], response: &str) -> Result<(), String> {
    let lines: Vec<_> = response.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // Any line other than a known confirmation is an error message.
    let error_line = lines.iter().find(|line| !CONFIRMATIONS.iter().any(|sentence| line.starts_with(sentence)));
    if let Some(error_line) = error_line {
        return Err((*error_line).to_owned());
    }
    // Most other commands are silent on success. These two always confirm, and silence means a truncated response.
    for (verb, sentence) in [("add ", ADD_CONFIRMATION), ("del ", DELETE_CONFIRMATION)] {
        let is_sent = commands.iter().any(|command| command.starts_with(verb));
        if is_sent && !lines.iter().any(|line| line.starts_with(sentence)) {
            return Err("no confirmation".to_owned());
        }
    }
    Ok(())
}

/// Splits the response to `show info; show servers state …; show stat …`.
pub(super) fn split_sections(response: &str) -> [&str; 3] {
    let start_of = |header: &str| {
        let is_line_start = |offset: usize| offset == 0 || response.as_bytes()[offset - 1] == b'\n';
        let mut offsets = response.match_indices(header).map(|(offset, _)| offset);
        offsets.find(|offset| is_line_start(*offset)).unwrap_or(response.len())
    };
    let stat = start_of("# pxname");
    let servers = start_of("# be_id").min(stat);
    [&response[..servers], &response[servers..stat], &response[stat..]]
}

/// Returns the first line of a response that belongs to none of the three sections of `split_sections`. HAProxy reports
/// errors as such lines.
pub(super) fn error_line(response: &str) -> String {
    // Lines of `show info` contain `: `, tables start with `#`, and the version line of the server table is `1`.
    let is_error = |line: &&str| !line.is_empty() && !line.contains(": ") && !line.starts_with(['#', '1']);
    response.lines().map(str::trim).find(is_error).unwrap_or("an empty response").to_owned()
}

/// Returns the rows of a table as maps from column names to values. The header is a line `# name name …`.
fn parse_rows(response: &str) -> Result<Vec<BTreeMap<&str, &str>>, ParseError> {
    let mut lines = response.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    // The version of the format precedes the table, unless it was split off.
    lines.next_if(|line| line.bytes().all(|byte| byte.is_ascii_digit()));
    let head = lines.next().and_then(|line| line.strip_prefix('#')).ok_or(ParseError::ErrorResponse)?;
    let names: Vec<_> = head.split_whitespace().collect();
    Ok(lines.map(|line| names.iter().copied().zip(line.split_whitespace()).collect()).collect())
}

fn field<'a>(row: &BTreeMap<&str, &'a str>, name: &str) -> Result<&'a str, ParseError> {
    row.get(name).copied().ok_or_else(|| ParseError::Malformed(format!("a row without `{name}`")))
}

fn parse_number<N: std::str::FromStr>(row: &BTreeMap<&str, &str>, name: &str) -> Result<N, ParseError> {
    let text = field(row, name)?;
    text.parse().map_err(|_| ParseError::Malformed(format!("`{name}` is {text:?}, which is not a valid number")))
}

/// Reads the response to `show servers state BACKEND`: all servers with the name prefix `prefix`, and the names of
/// the others.
///
/// Only the name of a foreign server is read. Such a server may have no address or port, or an unknown form, and must
/// not stop the mirror.
pub(super) fn parse_servers(response: &str, prefix: &str) -> Result<(Vec<ListedServer>, BTreeSet<String>), ParseError> {
    let (mut servers, mut others) = (Vec::new(), BTreeSet::new());
    for row in parse_rows(response)? {
        let name = field(&row, "srv_name")?.to_owned();
        if !name.starts_with(prefix) {
            others.insert(name);
            continue;
        }
        let checks: u32 = parse_number(&row, "srv_check_state")?;
        // A server without an address gets `0.0.0.0`, which differs from every desired server.
        let ip = field(&row, "srv_addr")?.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        servers.push(ListedServer {
            name,
            address: SocketAddr::new(ip, parse_number(&row, "srv_port")?),
            weight: parse_number(&row, "srv_uweight")?,
            is_ready: parse_number::<u32>(&row, "srv_admin_state")? == 0,
            is_check_disabled: checks & CHECK_CONFIGURED != 0 && checks & CHECK_ENABLED == 0,
        });
    }
    Ok((servers, others))
}

/// Reads the number of sessions of each server with the name prefix `prefix` from the response to `show stat BACKEND
/// 4 -1`.
pub(super) fn parse_session_counts(response: &str, prefix: &str) -> Result<BTreeMap<String, u64>, ParseError> {
    let mut lines = response.lines().filter(|line| !line.is_empty());
    let head = lines.next().and_then(|line| line.strip_prefix("# ")).ok_or(ParseError::ErrorResponse)?;
    let names: Vec<_> = head.split(',').collect();
    let mut sessions = BTreeMap::new();
    for line in lines {
        let row = names.iter().copied().zip(line.split(',')).collect();
        let name = field(&row, "svname")?;
        if name.starts_with(prefix) {
            sessions.insert(name.to_owned(), parse_number(&row, "scur")?);
        }
    }
    Ok(sessions)
}
