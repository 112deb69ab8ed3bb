//! Response heads: success or failure, encoding and compression.

use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use steadfast_core::decode::{self, Encoding, UnsupportedContentType};
use steadfast_core::record::Status;
use steadfast_core::reflector::Failure;

use super::gunzip::Gunzip;
use crate::transport::ResponseBody;

/// Maximum number of bytes read from an error body.
const MAX_STATUS_BYTES: usize = 64 * 1024;

/// Error response with its details.
pub(crate) struct ErrorResponse {
    pub(crate) failure: Failure,
    /// Continue token for the rest of a list whose previous token has expired.
    pub(crate) continue_token: Option<String>,
}

impl From<Failure> for ErrorResponse {
    fn from(failure: Failure) -> Self {
        Self { failure, continue_token: None }
    }
}

impl From<ErrorResponse> for Failure {
    fn from(error_response: ErrorResponse) -> Self {
        error_response.failure
    }
}

/// Successful response head with an unread body.
pub(super) struct ResponseHead {
    pub(super) encoding: Encoding,
    pub(super) body: ResponseBody,
    /// True if the body is compressed.
    pub(super) gzip: bool,
}

/// Expected properties of a response head.
pub(super) struct Expected {
    /// Permissions that a forbidden request requires, for messages.
    pub(super) permission_advice: String,
    /// Advice for a resource that does not exist.
    pub(super) not_found_advice: String,
    /// True if protobuf is accepted.
    pub(super) protobuf: bool,
    /// True if compression is accepted.
    pub(super) gzip: bool,
}

/// Processes a response head: returns the body of a success, or the meaning of an error.
pub(super) async fn read_head(
    response: http::Response<ResponseBody>,
    expected: &Expected,
) -> Result<ResponseHead, ErrorResponse> {
    let (head, body) = response.into_parts();
    let coding = content_coding(&head.headers);
    let gzip = expected.gzip && coding.as_ref().is_some_and(|coding| coding == "gzip");
    if !head.status.is_success() {
        // Only the form in seconds is parsed: Kubernetes sends no dates.
        let retry_after_seconds =
            head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let code = head.status.as_u16();
        let text = Limited::new(body, MAX_STATUS_BYTES).collect().await.map(http_body_util::Collected::to_bytes);
        // Without its body, an error still has a status code and `Retry-After`.
        let text = text.unwrap_or_default();
        let text = if gzip { Gunzip::decompressed_prefix(text, MAX_STATUS_BYTES) } else { text };
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Some servers declare JSON bodies as text.
        let encoding = Encoding::of_content_type(content_type).unwrap_or(Encoding::Json);
        let status = decode::status(encoding, &text);
        // A 410 for an expired token contains another token, for the rest of the list at a newer version.
        let continue_token = status.as_ref().and_then(|_| decode::continue_token(encoding, &text));
        let status = Status { code, ..status.unwrap_or_default() };
        let mut failure = Failure::from_status(&status, retry_after_seconds.map(Duration::from_secs));
        if head.status == StatusCode::FORBIDDEN {
            failure.message = format!("{} ({})", failure.message, expected.permission_advice).into();
        }
        if head.status == StatusCode::NOT_FOUND {
            failure.message = format!("{} ({})", failure.message, expected.not_found_advice).into();
        }
        return Err(ErrorResponse { failure, continue_token });
    }
    if head.status != StatusCode::OK {
        let code = head.status.as_u16();
        return Err(Failure::unreadable(format!(
            "the server responded with {code}, which means that no objects follow"
        ))
        .into());
    }
    if let Some(coding) = coding.filter(|_| !gzip) {
        let coding: String = coding.chars().take(128).collect();
        let reason =
            format!("content encoding {coding:?}, which was not requested; check the proxies on the network path");
        return Err(Failure::unreadable(reason).into());
    }
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match Encoding::of_content_type(content_type) {
        Ok(Encoding::Protobuf) if !expected.protobuf => {
            let content_type = content_type.chars().take(128).collect();
            Err(Failure::unreadable(UnsupportedContentType { content_type }.to_string()).into())
        }
        Ok(encoding) => Ok(ResponseHead { encoding, body, gzip }),
        Err(error) => Err(Failure::unreadable(error.to_string()).into()),
    }
}

/// Returns the codings of a body in lower case, in the order of their application; `None` for a plain body.
///
/// Several lines of the header are one list (RFC 9110, section 5.3): each proxy that compresses may add a line.
fn content_coding(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(CONTENT_ENCODING).iter().map(|line| line.to_str().unwrap_or("unreadable"));
    // `identity` means no coding. Some proxies send it, although RFC 9110 discourages it.
    let codings = lines.flat_map(|line| line.split(',')).map(|coding| coding.trim().to_ascii_lowercase());
    codings.filter(|coding| !coding.is_empty() && coding != "identity").reduce(|all, coding| format!("{all}, {coding}"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn lines_of_content_encoding_are_one_list() {
        let coding = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(line));
            }
            content_coding(&headers)
        };
        assert_eq!(coding(&[]), None);
        assert_eq!(coding(&["identity", ""]), None);
        assert_eq!(coding(&["identity", "gzip"]).as_deref(), Some("gzip"));
        assert_eq!(coding(&["identity, GZIP"]).as_deref(), Some("gzip"));
        assert_eq!(coding(&["gzip", "br"]).as_deref(), Some("gzip, br"));
    }
}
