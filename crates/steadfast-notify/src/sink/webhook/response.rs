//! Action after a receiver's response.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use jiff::fmt::strtime;

use crate::delivery_outcome::DeliveryOutcome;
use crate::engine_event::is_unsafe;

/// Maximum number of characters of a response body in an error.
const MAX_EXCERPT_CHARS: usize = 200;

/// Minimum length of words in secrets, in characters. Shorter words such as `https` may occur in any text.
const SECRET_MIN_WORD_CHARS: usize = 6;

/// Length of parts of long secret words that must not appear in an error, in characters.
const SECRET_PART_CHARS: usize = 8;

/// Action after a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseAction {
    Outcome(DeliveryOutcome),
    /// The receiver rejected the credentials (401, 403, 407).
    Unauthorized(String),
    /// Redirect of the same request to another address (307, 308).
    Redirect,
}

/// Returns the action after a response. `excerpt` is the start of the body for error messages.
pub(super) fn classify(status: StatusCode, headers: &HeaderMap, excerpt: &str, now: Timestamp) -> ResponseAction {
    let excerpt = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
    let reason = format!("the server returned {status}{excerpt}");
    if status.is_success() {
        return ResponseAction::Outcome(DeliveryOutcome::Delivered);
    }
    let requested_delay = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?.trim(), now));
    ResponseAction::Outcome(match status {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => return ResponseAction::Redirect,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            return ResponseAction::Unauthorized(reason);
        }
        StatusCode::TOO_MANY_REQUESTS => DeliveryOutcome::Busy { retry_after: requested_delay, reason },
        // 408 and 425 mean that the client should repeat the request.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => {
            DeliveryOutcome::Retry { retry_after: requested_delay, reason }
        }
        // Other client errors are permanent: a repetition would get the same response.
        _ if status.is_client_error() => DeliveryOutcome::Rejected { reason },
        _ if status.is_redirection() => DeliveryOutcome::Rejected {
            reason: format!("{reason}; only 307 and 308 are followed, so set `url` to the new address"),
        },
        _ => DeliveryOutcome::Retry { retry_after: requested_delay, reason },
    })
}

/// Returns the delay of `Retry-After`: a number of seconds, or an HTTP date in any of the three formats (RFC 9110).
fn retry_after(requested: &str, now: Timestamp) -> Option<Duration> {
    if !requested.is_empty() && requested.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number beyond the range of `u64` is treated as the maximum.
        return Some(Duration::from_secs(requested.parse().unwrap_or(u64::MAX)));
    }
    let parse_obsolete_date = |format: &str| {
        let time = strtime::parse(format, requested).ok()?.to_datetime().ok()?;
        Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    // RFC 9110, section 5.6.7: clients must accept two obsolete date formats, too.
    let until = (rfc2822::DateTimeParser::new().parse_timestamp(requested).ok())
        .or_else(|| parse_obsolete_date("%A, %d-%b-%y %H:%M:%S GMT"))
        .or_else(|| parse_obsolete_date("%a %b %e %H:%M:%S %Y"))?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// Returns the start of a response body for an error message, as one line without control characters. Returns an empty
/// text for HTML and binary bodies, and a note instead of a body that repeats a part of a secret.
pub(super) fn excerpt<'a>(body: &[u8], mut secrets: impl Iterator<Item = &'a str>) -> String {
    // Binary responses are not shown.
    let Ok(text) = std::str::from_utf8(body) else { return String::new() };
    let text = text.trim();
    if text.starts_with('<') {
        // An HTML page is not useful in a log.
        return String::new();
    }
    let lowercase = text.to_lowercase();
    if secrets.any(|secret| contains_part_of(&lowercase, secret)) {
        return "(the response repeats a secret and is not shown)".to_owned();
    }
    let mut words = String::new();
    for character in text.chars().take(MAX_EXCERPT_CHARS) {
        words.push(if is_unsafe(character) { ' ' } else { character });
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if the lowercase `text` contains a part of a secret.
fn contains_part_of(text: &str, secret: &str) -> bool {
    let secret = secret.to_lowercase();
    let is_separator = |character: char| !(character.is_alphanumeric() || character == '-' || character == '_');
    let mut words = secret.split(is_separator).filter(|word| word.chars().count() >= SECRET_MIN_WORD_CHARS).peekable();
    if words.peek().is_none() {
        return text.contains(&secret);
    }
    words.any(|word| {
        let characters: Vec<char> = word.chars().collect();
        let contains_part = |part: &[char]| text.contains(&part.iter().collect::<String>());
        if characters.len() < SECRET_PART_CHARS {
            text.contains(word)
        } else {
            characters.windows(SECRET_PART_CHARS).any(contains_part)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action_for(status: u16, retry_after: Option<&str>) -> ResponseAction {
        let mut headers = HeaderMap::new();
        if let Some(retry_after) = retry_after {
            headers.insert(RETRY_AFTER, retry_after.parse().expect("a value"));
        }
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        classify(StatusCode::from_u16(status).expect("a status"), &headers, "", now)
    }

    #[test]
    fn status_determines_the_outcome() {
        for status in [200, 202, 204] {
            assert_eq!(action_for(status, None), ResponseAction::Outcome(DeliveryOutcome::Delivered), "{status}");
        }
        for status in [400, 404, 410, 413, 422, 300, 301, 302, 303, 304] {
            assert!(
                matches!(action_for(status, None), ResponseAction::Outcome(DeliveryOutcome::Rejected { .. })),
                "{status}"
            );
        }
        for status in [408, 425, 500, 502, 503, 504] {
            let action = action_for(status, None);
            assert!(
                matches!(action, ResponseAction::Outcome(DeliveryOutcome::Retry { retry_after: None, .. })),
                "{status}"
            );
        }
        assert!(matches!(
            action_for(429, Some("7")),
            ResponseAction::Outcome(DeliveryOutcome::Busy { retry_after: Some(_), .. })
        ));
        for status in [401, 403, 407] {
            assert!(matches!(action_for(status, None), ResponseAction::Unauthorized(_)), "{status}");
        }
        assert_eq!(
            (action_for(307, None), action_for(308, None)),
            (ResponseAction::Redirect, ResponseAction::Redirect)
        );
    }

    #[test]
    fn retry_after_accepts_seconds_and_dates() {
        let requested_delay = |requested| match action_for(503, Some(requested)) {
            ResponseAction::Outcome(DeliveryOutcome::Retry { retry_after: requested_delay, .. }) => requested_delay,
            other => panic!("{other:?}"),
        };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(requested_delay("60"), minute);
        assert_eq!(requested_delay("Fri, 02 Jan 2026 03:05:05 GMT"), minute);
        assert_eq!(requested_delay("Friday, 02-Jan-26 03:05:05 GMT"), minute);
        assert_eq!(requested_delay("Fri Jan  2 03:05:05 2026"), minute);
        // A date in the past.
        assert_eq!(requested_delay("Fri, 02 Jan 2026 03:00:05 GMT"), Some(Duration::ZERO));
        assert_eq!(requested_delay("18446744073709551616000"), Some(Duration::from_secs(u64::MAX)));
        for nonsense in ["soon", "", "-5", "1.5", "+7"] {
            assert_eq!(requested_delay(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn excerpt_hides_secrets_and_control_characters() {
        let excerpt = |body: &str, secret: &'static str| super::excerpt(body.as_bytes(), [secret].into_iter());
        assert_eq!(excerpt("invalid_payload\n", "T000/B000/token"), "invalid_payload");
        assert_eq!(excerpt("\u{1b}[31mred\u{202e}\r\nline", "secret-token"), "[31mred line");
        assert!(!excerpt("unknown token HUNTER2-abc", "Bearer hunter2-abcdef").contains("HUNTER"));
        assert!(!excerpt("bad key abc", "abc").contains("abc"));
        assert!(!excerpt("no webhook hunter2", "https://h.test/T000/hunter2").contains("hunter"));
        assert_eq!(excerpt("no_service", "https://h.test/services/T000/hunter2"), "no_service");
        assert_eq!(excerpt("<html>no</html>", "x"), "");
        assert_eq!(excerpt(&"x".repeat(10_000), "secret-token").len(), MAX_EXCERPT_CHARS);
    }
}
