//! Encodings of response bodies.

use std::fmt;

/// Encoding of API objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON",
            Self::Protobuf => "protobuf",
        })
    }
}

/// Error for a response in an encoding that was not requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported content type {content_type:?}")]
pub struct UnsupportedContentType {
    /// Content type of the response, shortened if it is overlong.
    pub content_type: String,
}

impl Encoding {
    /// Returns the encoding of a response by its `Content-Type`.
    ///
    /// # Errors
    ///
    /// Returns an error for another encoding, and for objects in a converted form that is not supported, such as a
    /// `Table`.
    pub fn of_content_type(content_type: &str) -> Result<Self, UnsupportedContentType> {
        let mut parts = content_type.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let encodings = [("application/json", Self::Json), ("application/vnd.kubernetes.protobuf", Self::Protobuf)];
        let named = encodings.into_iter().find(|(name, _)| media_type.eq_ignore_ascii_case(name));
        if let Some((_, encoding)) = named.filter(|_| parts.all(is_supported_parameter)) {
            return Ok(encoding);
        }
        Err(UnsupportedContentType { content_type: content_type.chars().take(128).collect() })
    }
}

fn is_supported_parameter(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let value = value.trim_matches('"');
    match name.to_ascii_lowercase().as_str() {
        "charset" => value.eq_ignore_ascii_case("utf-8"),
        // A `Table` has another structure, so only metadata is accepted.
        "as" => matches!(value, "PartialObjectMetadata" | "PartialObjectMetadataList"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_parameters_are_ignored_except_conversions() {
        for fine in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;stream=watch",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ] {
            assert_eq!(Encoding::of_content_type(fine), Ok(Encoding::Json), "{fine}");
            let protobuf = fine.to_ascii_lowercase().replace("application/json", "application/vnd.kubernetes.protobuf");
            let fine = protobuf.replace("partialobjectmetadatalist", "PartialObjectMetadataList");
            assert_eq!(Encoding::of_content_type(&fine), Ok(Encoding::Protobuf), "{fine}");
        }
        for wrong in [
            "",
            "text/html",
            "application/jsonp",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json; charset=latin1",
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuffer",
        ] {
            assert!(Encoding::of_content_type(wrong).is_err(), "{wrong}");
        }
    }
}
