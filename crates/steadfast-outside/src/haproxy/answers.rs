//! What HAProxy answers, read.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) weight: u16,
    /// Whether nobody has put it into maintenance, or has it drain.
    pub(super) is_ready: bool,
}

/// An answer that is no list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unexpected {
    /// It says what is wrong.
    Refused,
    /// It is a list of another form.
    Form(String),
}

/// Whether what `command` says is done.
///
/// The runtime API has no codes: what is done is answered with nothing, or with a sentence of its own.
pub(super) fn is_done(command: &str, answer: &str) -> bool {
    let answer = answer.trim();
    let said = |sentence: &str| answer.starts_with(sentence);
    match command.split(' ').next().unwrap_or_default() {
        "add" => said("New server registered"),
        "del" => said("Server deleted"),
        _ => answer.is_empty() || said("IP changed") || said("port changed") || said("no need to change"),
    }
}

/// The rows of a table under a line `# name name …`, each by these names.
fn rows(answer: &str) -> Result<Vec<BTreeMap<&str, &str>>, Unexpected> {
    let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    // Before its table, the format's version.
    lines.next_if(|line| line.bytes().all(|byte| byte.is_ascii_digit()));
    let head = lines.next().and_then(|line| line.strip_prefix('#')).ok_or(Unexpected::Refused)?;
    let names: Vec<_> = head.split_whitespace().collect();
    Ok(lines.map(|line| names.iter().copied().zip(line.split_whitespace()).collect()).collect())
}

fn field<'a>(row: &BTreeMap<&str, &'a str>, name: &str) -> Result<&'a str, Unexpected> {
    row.get(name).copied().ok_or_else(|| Unexpected::Form(format!("a row without `{name}`")))
}

fn number<N: std::str::FromStr>(row: &BTreeMap<&str, &str>, name: &str) -> Result<N, Unexpected> {
    let text = field(row, name)?;
    text.parse().map_err(|_| Unexpected::Form(format!("`{name}` is {text:?}, which is no such number")))
}

/// What `show servers state BACKEND` lists. A server without an address of its own is none of ours, and has no port then.
pub(super) fn servers(answer: &str) -> Result<Vec<Listed>, Unexpected> {
    let mut servers = Vec::new();
    for row in rows(answer)? {
        let address = field(&row, "srv_addr")?;
        let ip = address.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        servers.push(Listed {
            name: field(&row, "srv_name")?.to_owned(),
            address: SocketAddr::new(ip, number(&row, "srv_port")?),
            weight: number(&row, "srv_uweight")?,
            is_ready: number::<u32>(&row, "srv_admin_state")? == 0,
        });
    }
    Ok(servers)
}

/// How many sessions each server has now, as `show stat BACKEND 4 -1` lists them, separated by commas.
pub(super) fn used(answer: &str) -> Result<BTreeMap<String, u64>, Unexpected> {
    let mut lines = answer.lines().filter(|line| !line.is_empty());
    let head = lines.next().and_then(|line| line.strip_prefix("# ")).ok_or(Unexpected::Refused)?;
    let names: Vec<_> = head.split(',').collect();
    let sessions = lines.map(|line| {
        let row = names.iter().copied().zip(line.split(',')).collect();
        Ok((field(&row, "svname")?.to_owned(), number(&row, "scur")?))
    });
    sessions.collect()
}
