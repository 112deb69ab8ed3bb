//! Error causes without sensitive data.

/// Returns the innermost cause of an error. Outer errors may contain a request with secret headers.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
