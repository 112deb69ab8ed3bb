//! Excerpts of what a plugin printed on standard error, without secrets.

/// Maximum length of an excerpt in an error, in characters.
const MAX_EXCERPT_LENGTH: usize = 600;

/// Minimum length of a word that is searched for in the output.
const MIN_WORD_LENGTH: usize = 6;
/// Minimum length of a run of characters that may be a random secret.
const MIN_RANDOM_LENGTH: usize = 20;

/// Replacement for a secret.
const REDACTED: &str = "[redacted]";

/// Words after which a secret follows.
const LABELS: [&str; 8] = ["token", "secret", "password", "passwd", "bearer", "authorization", "key", "cookie"];

/// Returns the end of `errors` on one line. Redacts words from `output`, words with one of `secrets`, and words that
/// resemble a secret.
pub(super) fn excerpt(errors: &[u8], output: &[u8], secrets: &[&str]) -> String {
    let text = printable(&String::from_utf8_lossy(errors));
    let output = String::from_utf8_lossy(output);
    let secrets: Vec<&str> = secrets.iter().copied().filter(|secret| secret.len() >= MIN_WORD_LENGTH).collect();
    // Whole secrets are replaced before single words, since a secret may contain blanks.
    let text = secrets.iter().fold(text, |text, secret| text.replace(secret, REDACTED));
    let mut follows_label = false;
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            let secret = std::mem::replace(&mut follows_label, is_label(word));
            redacted(word, secret || is_printed(word, &output))
        })
        .collect();
    let text = words.join(" ");
    let length = text.chars().count();
    match length.checked_sub(MAX_EXCERPT_LENGTH) {
        // The end is kept: a script prints the reason after its stack trace.
        Some(skipped) if skipped > 0 => format!("… {}", text.chars().skip(skipped).collect::<String>()),
        _ => text,
    }
}

/// Returns `text` without control characters, which could change a terminal. Line breaks become blanks.
pub(super) fn printable(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    text.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
}

/// Returns true if a secret follows `word`: `token:`, `Bearer`, `--password`.
fn is_label(word: &str) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    let introduces = word.ends_with([':', '=']) || word.starts_with('-') || bare == "bearer";
    introduces && LABELS.iter().any(|label| bare.ends_with(label))
}

fn is_printed(word: &str, output: &str) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    bare.len() >= MIN_WORD_LENGTH && output.contains(bare)
}

/// Returns `word` without secrets.
fn redacted(word: &str, is_secret: bool) -> String {
    if is_secret {
        return REDACTED.to_owned();
    }
    // `token=abc`, `"password":"abc"`.
    if let Some((label, value)) = word.split_once(['=', ':'])
        && !value.is_empty()
        && !value.starts_with("//")
    {
        let bare = label.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
        if LABELS.iter().any(|known| bare.ends_with(known)) {
            return format!("{label}={REDACTED}");
        }
    }
    // The user and password of a URL.
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.split_once('@')
    {
        return format!("{scheme}://{REDACTED}@{host}");
    }
    let parts = word.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/' | '=' | '.')));
    if parts.into_iter().any(resembles_secret) { REDACTED.to_owned() } else { word.to_owned() }
}

/// Returns true if `part` starts like a token or contains a long run of letters and digits, as keys do. A slash or a
/// dot ends a run, so that paths and host names do not match.
fn resembles_secret(part: &str) -> bool {
    // The header of a JSON Web Token.
    part.starts_with("eyJ")
        || part.split(['/', '.']).any(|run| {
            let letters = run.chars().any(|c| c.is_ascii_alphabetic());
            let digits = run.chars().filter(char::is_ascii_digit).count();
            run.len() >= MIN_RANDOM_LENGTH && letters && digits >= 2
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_redacts_what_resembles_secrets() {
        for (errors, expected) in [
            ("cannot reach sts.eu-west-1.example.com:443", "cannot reach sts.eu-west-1.example.com:443"),
            ("line one\nline two\n", "line one line two"),
            ("\u{1b}[1mbold\u{1b}[0m", "[1mbold[0m"),
            ("token: abc", "token: [redacted]"),
            ("Authorization: Bearer abc def", "Authorization: [redacted] [redacted] def"),
            ("password=hunter2", "password=[redacted]"),
            ("--api-key hunter2 --verbose", "--api-key [redacted] --verbose"),
            ("sent eyJhbGciOi.x.y to it", "sent [redacted] to it"),
            ("AKIA01234567ABCDEFGHIJ expired", "[redacted] expired"),
            ("https://user:pass@host/path", "https://[redacted]@host/path"),
            ("No such file: /usr/local/bin/login", "No such file: /usr/local/bin/login"),
        ] {
            assert_eq!(excerpt(errors.as_bytes(), b"", &[]), expected, "{errors}");
        }
    }

    #[test]
    fn excerpt_redacts_printed_and_configured_words() {
        assert_eq!(excerpt(b"got s3cr3t-word!", br#"{"token":"s3cr3t-word"}"#, &[]), "got [redacted]");
        assert_eq!(excerpt(b"used two words here", b"", &["two words"]), "used [redacted] here");
    }

    #[test]
    fn excerpt_keeps_the_end() {
        let long = format!("{}the reason", "trace ".repeat(500));
        let shown = excerpt(long.as_bytes(), b"", &[]);
        assert!(shown.starts_with('…') && shown.ends_with("the reason"), "{shown}");
        assert!(shown.chars().count() <= MAX_EXCERPT_LENGTH + 2);
    }
}
