//! Messages about names and labels. The wording is that of a real API server, since rules may return these messages.

/// Pattern of a DNS label, as messages quote the pattern.
const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
/// Pattern of a DNS label that starts with a letter.
const LABEL_1035_PATTERN: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
/// Maximum length of a label in bytes.
const MAX_LABEL_BYTES: usize = 63;
/// Maximum length of a subdomain in bytes.
const MAX_SUBDOMAIN_BYTES: usize = 253;

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text matches [`LABEL_PATTERN`].
fn is_label(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'-' || is_alphanumeric(byte))
        && text.bytes().next().is_some_and(is_alphanumeric)
        && text.bytes().next_back().is_some_and(is_alphanumeric)
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Unit of length limits in messages. Messages about DNS names use characters; messages about label keys and
/// label values use bytes.
#[derive(Clone, Copy)]
enum LengthUnit {
    Bytes,
    Characters,
}

fn too_long_message(limit: usize, unit: LengthUnit) -> String {
    let unit = match unit {
        LengthUnit::Bytes => "bytes",
        LengthUnit::Characters => "characters",
    };
    format!("must be no more than {limit} {unit}")
}

fn mismatch_message(message: &str, examples: &[&str], pattern: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// Returns the errors of a DNS label.
pub(super) fn dns_1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL_BYTES {
        errors.push(too_long_message(MAX_LABEL_BYTES, LengthUnit::Characters));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                           start and end with an alphanumeric character";
            mismatch_message(message, &["my-name", "123-abc"], LABEL_PATTERN)
        });
    }
    errors
}

/// Returns the errors of a DNS subdomain.
pub(super) fn dns_1123_subdomain(text: &str) -> Vec<String> {
    subdomain(text, LengthUnit::Characters)
}

fn subdomain(text: &str, unit: LengthUnit) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_SUBDOMAIN_BYTES {
        errors.push(too_long_message(MAX_SUBDOMAIN_BYTES, unit));
    }
    if !is_subdomain(text) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                       must start and end with an alphanumeric character";
        errors.push(mismatch_message(message, &["example.com"], &format!("{LABEL_PATTERN}(\\.{LABEL_PATTERN})*")));
    }
    errors
}

/// Returns the errors of a DNS label that starts with a letter.
pub(super) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL_BYTES {
        errors.push(too_long_message(MAX_LABEL_BYTES, LengthUnit::Characters));
    }
    if !is_label(text) || !text.starts_with(|character: char| character.is_ascii_lowercase()) {
        let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                       alphabetic character, and end with an alphanumeric character";
        errors.push(mismatch_message(message, &["my-name", "abc-123"], LABEL_1035_PATTERN));
    }
    errors
}

/// Returns whether a text consists of the characters of labels, and starts and ends with a letter or a digit.
fn is_label_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the errors of a qualified name: the key of a label.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let rule = mismatch_message(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        &["MyName", "my.name", "123-abc"],
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    );
    let (prefix, name) = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut errors = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => {
            subdomain(prefix, LengthUnit::Bytes).iter().map(|error| format!("prefix part {error}")).collect()
        }
        None => Vec::new(),
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL_BYTES {
        errors.push(format!("name part {}", too_long_message(MAX_LABEL_BYTES, LengthUnit::Bytes)));
    }
    if !is_label_text(name) {
        errors.push(format!("name part {rule}"));
    }
    errors
}

/// Returns the errors of the value of a label.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL_BYTES {
        errors.push(too_long_message(MAX_LABEL_BYTES, LengthUnit::Bytes));
    }
    if !text.is_empty() && !is_label_text(text) {
        let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                       must start and end with an alphanumeric character";
        let pattern = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
        errors.push(mismatch_message(message, &["MyValue", "my_value", "12345"], pattern));
    }
    errors
}
