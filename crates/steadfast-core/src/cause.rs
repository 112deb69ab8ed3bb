//! Texts of errors with their causes.

use std::error::Error;

/// Returns the message of the innermost source of `error`, which is the most specific. Outer messages may contain a
/// request with secret headers.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Returns the message of `error`, followed by the messages of those sources that the text does not include yet.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors already include the message of their source.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    fn outer(text: &'static str) -> Outer {
        Outer { text, source: io::Error::other("connection refused") }
    }

    #[test]
    fn root_cause_is_the_innermost_message() {
        assert_eq!(root_cause(&outer("request failed")), "connection refused");
        assert_eq!(root_cause(&io::Error::other("alone")), "alone");
    }

    #[test]
    fn included_causes_are_not_repeated() {
        assert_eq!(with_causes(&outer("request failed")), "request failed: connection refused");
        assert_eq!(with_causes(&outer("failed: connection refused")), "failed: connection refused");
    }
}
