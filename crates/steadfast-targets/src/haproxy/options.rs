//! Options of the servers that a mirror adds.

use std::fmt;
use std::str::FromStr;

use super::error::HaproxyError;

/// Maximum length of all options in bytes: a command must fit into HAProxy's buffer (`tune.bufsize`, 16 KiB by
/// default).
const MAX_OPTION_BYTES: usize = 2048;

/// Maximum of HAProxy's numbers and of its times in milliseconds.
const MAX_NUMBER: u64 = i32::MAX as u64;

/// Options of the servers that a mirror adds, in HAProxy's syntax: `check inter 2s fall 2 maxconn 100`.
///
/// Servers added at run time inherit nothing from `default-server`, so its options must be repeated here. No
/// options by default. Options apply to servers that are added later; a server that exists keeps its options until it
/// is replaced, or until HAProxy is reloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    words: Vec<String>,
}

/// Form of the value of an option.
#[derive(Clone, Copy)]
enum ValueKind {
    /// No value.
    Flag,
    /// A time, in milliseconds or with a unit.
    Time,
    /// A number in this range.
    Number(u64, u64),
    /// Word from this list.
    OneOf(&'static [&'static str]),
    /// Any word without special characters of the runtime API.
    Word,
}

/// Options that HAProxy accepts for servers that are added at run time.
const OPTIONS: &[(&str, ValueKind)] = &[
    ("addr", ValueKind::Word),
    ("alpn", ValueKind::Word),
    ("backup", ValueKind::Flag),
    ("ca-file", ValueKind::Word),
    ("check", ValueKind::Flag),
    ("check-alpn", ValueKind::Word),
    ("check-proto", ValueKind::Word),
    ("check-send-proxy", ValueKind::Flag),
    ("check-sni", ValueKind::Word),
    ("check-ssl", ValueKind::Flag),
    ("check-via-socks4", ValueKind::Flag),
    ("ciphers", ValueKind::Word),
    ("ciphersuites", ValueKind::Word),
    ("crl-file", ValueKind::Word),
    ("crt", ValueKind::Word),
    ("downinter", ValueKind::Time),
    ("error-limit", ValueKind::Number(1, MAX_NUMBER)),
    ("fall", ValueKind::Number(1, MAX_NUMBER)),
    ("fastinter", ValueKind::Time),
    ("inter", ValueKind::Time),
    ("maxconn", ValueKind::Number(0, MAX_NUMBER)),
    ("maxqueue", ValueKind::Number(0, MAX_NUMBER)),
    ("minconn", ValueKind::Number(0, MAX_NUMBER)),
    ("no-ssl-reuse", ValueKind::Flag),
    ("no-tls-tickets", ValueKind::Flag),
    ("observe", ValueKind::OneOf(&["layer4", "layer7"])),
    ("on-error", ValueKind::OneOf(&["fastinter", "fail-check", "sudden-death", "mark-down"])),
    ("on-marked-down", ValueKind::OneOf(&["shutdown-sessions"])),
    ("on-marked-up", ValueKind::OneOf(&["shutdown-backup-sessions"])),
    ("pool-low-conn", ValueKind::Number(0, MAX_NUMBER)),
    ("pool-max-conn", ValueKind::Number(0, MAX_NUMBER)),
    ("pool-purge-delay", ValueKind::Time),
    ("port", ValueKind::Number(1, 65_535)),
    ("proto", ValueKind::Word),
    ("proxy-v2-options", ValueKind::Word),
    ("rise", ValueKind::Number(1, MAX_NUMBER)),
    ("send-proxy", ValueKind::Flag),
    ("send-proxy-v2", ValueKind::Flag),
    ("send-proxy-v2-ssl", ValueKind::Flag),
    ("send-proxy-v2-ssl-cn", ValueKind::Flag),
    ("slowstart", ValueKind::Time),
    ("sni", ValueKind::Word),
    ("source", ValueKind::Word),
    ("ssl", ValueKind::Flag),
    ("ssl-max-ver", ValueKind::Word),
    ("ssl-min-ver", ValueKind::Word),
    ("tfo", ValueKind::Flag),
    ("verify", ValueKind::OneOf(&["none", "required"])),
    ("verifyhost", ValueKind::Word),
    ("ws", ValueKind::OneOf(&["auto", "h1", "h2"])),
];

/// Options that have no effect without `check`.
const CHECK_OPTIONS: &[&str] = &[
    "addr",
    "check-alpn",
    "check-proto",
    "check-send-proxy",
    "check-sni",
    "check-ssl",
    "check-via-socks4",
    "downinter",
    "fall",
    "fastinter",
    "inter",
    "port",
    "rise",
];

/// Options that HAProxy's configuration allows, but a mirror's servers cannot have, each with the reason.
const REJECTED_OPTIONS: &[(&str, &str)] = &[
    ("agent-check", "an agent would change weights that the mirror sets"),
    ("cookie", "HAProxy accepts it only in its configuration"),
    ("disabled", "the mirror sets the state of its servers"),
    ("enabled", "the mirror sets the state of its servers"),
    ("id", "two servers cannot have the same ID"),
    ("init-addr", "HAProxy accepts it only in its configuration"),
    ("namespace", "HAProxy accepts it only in its configuration"),
    ("no-check", "HAProxy accepts it only in its configuration; leave out `check`"),
    ("resolvers", "HAProxy accepts it only in its configuration"),
    ("track", "each server of a mirror has its own checks"),
    ("weight", "it is the `weight` of an entry"),
];

impl ServerOptions {
    /// Returns true if HAProxy checks the health of the servers.
    pub(super) fn has_check(&self) -> bool {
        self.words.iter().any(|word| word == "check")
    }

    /// Returns true if no option is set.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// Parses options in the syntax of a `server` line in HAProxy's configuration, separated by white space.
impl FromStr for ServerOptions {
    type Err = HaproxyError;

    fn from_str(text: &str) -> Result<Self, HaproxyError> {
        let invalid = |option: &str, reason: String| HaproxyError::Option { option: option.to_owned(), reason };
        if text.len() > MAX_OPTION_BYTES {
            return Err(invalid(
                "server_options",
                format!("all options together are longer than {MAX_OPTION_BYTES} bytes"),
            ));
        }
        let mut names: Vec<&str> = Vec::new();
        let mut words = text.split_whitespace();
        while let Some(name) = words.next() {
            if let Some((_, reason)) = REJECTED_OPTIONS.iter().find(|(other, _)| *other == name) {
                return Err(invalid(name, (*reason).to_owned()));
            }
            let kind = OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
            let Some(kind) = kind else {
                let known: Vec<_> = OPTIONS.iter().map(|(known, _)| *known).collect();
                return Err(invalid(name, format!("it is not one of {}", known.join(", "))));
            };
            if names.contains(&name) {
                return Err(invalid(name, "it occurs twice".to_owned()));
            }
            names.push(name);
            if !matches!(kind, ValueKind::Flag) {
                let value = words.next().ok_or_else(|| invalid(name, "it needs a value".to_owned()))?;
                kind.check(value)
                    .map_err(|reason| invalid(name, format!("{value:?} is not a valid value: {reason}")))?;
            }
        }
        let needs_check = names.iter().find(|name| CHECK_OPTIONS.contains(name));
        if let Some(name) = needs_check.filter(|_| !names.contains(&"check")) {
            return Err(invalid(name, "it has no effect without `check`".to_owned()));
        }
        Ok(Self { words: text.split_whitespace().map(str::to_owned).collect() })
    }
}

impl fmt::Display for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

impl ValueKind {
    fn check(self, value: &str) -> Result<(), String> {
        match self {
            Self::Flag => Ok(()),
            Self::Time => match parse_milliseconds(value) {
                Some(time) if time <= MAX_NUMBER => Ok(()),
                _ => Err("write a time of at most 24 days, as `500ms`, `2s` or `1m`".to_owned()),
            },
            Self::Number(min, max) => match value.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                _ => Err(format!("write a number from {min} to {max}")),
            },
            Self::OneOf(words) if words.contains(&value) => Ok(()),
            Self::OneOf(words) => Err(format!("write {}", words.join(" or "))),
            Self::Word => {
                // Other characters end a command, escape a character, or start a payload.
                let is_plain = |byte: u8| byte.is_ascii_graphic() && !b";\\'\"<#`".contains(&byte);
                if value.bytes().all(is_plain) {
                    Ok(())
                } else {
                    Err("write ASCII without `;`, quotes, backslashes, `<` and `#`".to_owned())
                }
            }
        }
    }
}

/// Parses a time of HAProxy. The default unit is milliseconds.
fn parse_milliseconds(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let factor = match unit {
        "us" => return Some(number / 1000),
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_field_are_read() {
        for text in [
            "",
            "check inter 2s rise 2 fall 3",
            "check inter 500 maxconn 100 slowstart 10s",
            "ssl verify none sni req.hdr(host) send-proxy-v2",
            "ssl verify required ca-file @system-ca alpn h2,http/1.1",
            "check port 8080 on-marked-down shutdown-sessions observe layer4",
        ] {
            let options: ServerOptions = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(options.to_string(), text);
            assert_eq!(options.has_check(), text.starts_with("check"));
        }
    }

    #[test]
    fn invalid_option_error_includes_remedy() {
        for (text, expected_error) in [
            ("chekc", "`chekc`: it is not one of addr, alpn, backup"),
            ("check;disable", "it is not one of"),
            ("weight 5", "`weight`: it is the `weight` of an entry"),
            ("check check", "`check`: it occurs twice"),
            ("check inter", "`inter`: it needs a value"),
            ("inter 2s", "`inter`: it has no effect without `check`"),
            ("check inter 2 s", "`s`: it is not one of"),
            ("check inter 25d", "at most 24 days"),
            ("check inter 99999999999999999999s", "at most 24 days"),
            ("check fall 0", "write a number from 1 to 2147483647"),
            ("maxconn -1", "write a number from 0"),
            ("ssl verify maybe", "write none or required"),
            ("ssl ca-file /x;del", "without `;`"),
            ("ssl sni str(\"a\")", "without `;`, quotes"),
            ("ssl ca-file ä", "write ASCII"),
            (&format!("ssl ca-file {}", "a".repeat(2048)), "longer than 2048 bytes"),
        ] {
            let error = text.parse::<ServerOptions>().expect_err(text).to_string();
            assert!(error.contains(expected_error), "{text}: {error}");
        }
    }
}
