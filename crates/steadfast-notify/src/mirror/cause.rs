//! Causes of errors as far as they may be shown.

/// Returns the innermost cause of an error: outer ones may show a request with its headers.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
