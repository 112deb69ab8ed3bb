//! Negotiation of the form and the encoding of objects.

use std::borrow::Cow;

use crate::protobuf;
use crate::status::Status;

/// The form in which objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Complete objects.
    Object,
    /// Metadata only.
    Metadata,
    /// Rows of a table.
    Table,
}

/// Part of the objects in the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncludeObject {
    /// Nothing.
    None,
    /// Metadata. This is the default.
    Metadata,
    /// Complete objects.
    Object,
}

/// Parses `includeObject`.
pub(super) fn parse_include_object(option: &str) -> Result<IncludeObject, Status> {
    match option {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "None" => Ok(IncludeObject::None),
        "Object" => Ok(IncludeObject::Object),
        other => Err(Status::bad_request(format_args!("unrecognized includeObject value: \"{other}\""))),
    }
}

/// Encoding of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => protobuf::CONTENT_TYPE,
        }
    }

    /// Returns the content type of a watch.
    pub(super) fn event_content_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => protobuf::WATCH_CONTENT_TYPE,
        }
    }
}

pub(super) const JSON: &str = "application/json";

/// Returns the most preferred form and encoding in an `Accept` header that this server supports. Custom resources have
/// no protobuf encoding, except for their metadata. For a custom resource, an error always has the short message.
pub(super) fn negotiate(accept: &str, is_custom: bool) -> Result<(Form, Encoding), Status> {
    if accept.trim().is_empty() {
        return Ok((Form::Object, Encoding::Json));
    }
    let is_available =
        |(form, encoding): &(Form, Encoding)| !is_custom || (*form, *encoding) != (Form::Object, Encoding::Protobuf);
    by_preference(accept).into_iter().filter_map(supported_range).find(is_available).ok_or_else(|| {
        // Known types in an unsupported form result in the short message, unknown types in the long message.
        let is_known_type = accept.split(',').any(|range| encoding(media_type(range)).is_some());
        if is_known_type || is_custom {
            let message = format!("only the following media types are accepted: {JSON}, {}", protobuf::CONTENT_TYPE);
            return Status::new(406, "NotAcceptable", message);
        }
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {JSON}, {}, {JSON};stream=watch, {}",
            protobuf::CONTENT_TYPE,
            protobuf::WATCH_CONTENT_TYPE
        );
        Status::new(406, "NotAcceptable", message).with_details(serde_json::json!({}))
    })
}

/// Removes protobuf from an `Accept` header, for a server without protobuf. A header without any other media type is
/// replaced by an unknown media type.
pub(super) fn without_protobuf(accept: &str) -> Cow<'_, str> {
    if !accept.contains(protobuf::CONTENT_TYPE) {
        return Cow::Borrowed(accept);
    }
    let remaining: Vec<&str> =
        accept.split(',').filter(|range| encoding(media_type(range)) != Some(Encoding::Protobuf)).collect();
    // An empty `Accept` would permit any type.
    Cow::Owned(if remaining.is_empty() { "application/octet-stream".to_owned() } else { remaining.join(",") })
}

/// Returns the encoding for content that is not an object. Defaults to JSON if the `Accept` header has no supported
/// type.
pub(super) fn status_encoding(accept: &str) -> Encoding {
    negotiate(accept, false).map_or(Encoding::Json, |(_, encoding)| encoding)
}

/// Returns the ranges of an `Accept` header by weight. Among equal weights, more general ranges come later.
pub(super) fn by_preference(accept: &str) -> Vec<&str> {
    let mut ranges: Vec<&str> = accept.split(',').collect();
    let wildcard_count = |range: &str| media_type(range).matches('*').count();
    // The sort is stable, so equal ranges keep the order of the client.
    ranges.sort_by(|one, other| {
        // `total_cmp` also orders NaN, the result of parsing `q=nan`.
        weight(other).total_cmp(&weight(one)).then_with(|| wildcard_count(one).cmp(&wildcard_count(other)))
    });
    ranges
}

fn weight(range: &str) -> f64 {
    let mut parameters = range.split(';').skip(1);
    let weight = parameters.find_map(|parameter| parameter.trim().strip_prefix("q=")?.parse().ok());
    weight.unwrap_or(1.0)
}

pub(super) fn media_type(range: &str) -> &str {
    range.split(';').next().unwrap_or_default().trim()
}

fn encoding(media_type: &str) -> Option<Encoding> {
    match media_type {
        JSON | "application/*" | "*/*" => Some(Encoding::Json),
        protobuf::CONTENT_TYPE => Some(Encoding::Protobuf),
        _ => None,
    }
}

fn supported_range(range: &str) -> Option<(Form, Encoding)> {
    let encoding = encoding(media_type(range))?;
    let (mut form, mut version) = ("", "v1");
    let parameters = range.split(';').skip(1).filter_map(|part| part.trim().split_once('='));
    for (key, value) in parameters {
        match key {
            "as" => form = value,
            "v" => version = value,
            _ => {}
        }
    }
    let form = match (form, version) {
        ("", _) => Form::Object,
        // The cells of a table have any type, so a table has no protobuf message.
        ("Table", "v1") if encoding == Encoding::Json && cfg!(feature = "tables") => Form::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") => Form::Metadata,
        _ => return None,
    };
    Some((form, encoding))
}

#[cfg(test)]
mod tests {
    use super::{Encoding, Form, negotiate, status_encoding};

    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

    fn accepted_for_builtin(accept: &str) -> Option<(Form, Encoding)> {
        negotiate(accept, false).ok()
    }

    fn accepted_for_custom(accept: &str) -> Option<(Form, Encoding)> {
        negotiate(accept, true).ok()
    }

    #[test]
    fn first_supported_form_is_selected() {
        let json = |form| Some((form, Encoding::Json));
        assert_eq!(accepted_for_builtin(""), json(Form::Object));
        assert_eq!(accepted_for_builtin("*/*"), json(Form::Object));
        assert_eq!(
            accepted_for_builtin("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            json(Form::Table)
        );
        assert_eq!(
            accepted_for_builtin("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"),
            json(Form::Object)
        );
        assert_eq!(
            accepted_for_builtin("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
            json(Form::Metadata)
        );
        assert_eq!(negotiate("text/plain", false).unwrap_err().code, 406);
    }

    #[test]
    fn protobuf_follows_the_preference_order() {
        let protobuf = |form| Some((form, Encoding::Protobuf));
        assert_eq!(accepted_for_builtin(PROTOBUF), protobuf(Form::Object));
        assert_eq!(accepted_for_builtin(&format!("{PROTOBUF},application/json")), protobuf(Form::Object));
        assert_eq!(accepted_for_builtin(&format!("*/*,{PROTOBUF}")), protobuf(Form::Object));
        assert_eq!(
            accepted_for_builtin(&format!("{PROTOBUF};q=0.5,application/json")),
            Some((Form::Object, Encoding::Json))
        );
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        assert_eq!(accepted_for_builtin(&metadata), protobuf(Form::Metadata));
        assert_eq!(accepted_for_custom(&metadata), protobuf(Form::Metadata));
        assert_eq!(accepted_for_custom(&format!("{PROTOBUF},application/json")), Some((Form::Object, Encoding::Json)));
        assert_eq!(accepted_for_custom(PROTOBUF), None);
        assert_eq!(status_encoding(PROTOBUF), Encoding::Protobuf);
    }

    #[test]
    fn table_has_no_protobuf_message() {
        let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
        assert_eq!(accepted_for_builtin(&table), None);
        assert_eq!(status_encoding(&table), Encoding::Json);
        assert_eq!(accepted_for_builtin(&format!("{table},application/json")), Some((Form::Object, Encoding::Json)));
    }
}
