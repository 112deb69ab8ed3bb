//! Which form of the objects a client asks for.

use crate::status::Status;

/// The form in which objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are.
    Object,
    /// Only their metadata.
    Metadata,
    /// As rows of a table, for people.
    Table,
}

/// What the rows of a table carry of their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Included {
    /// Nothing.
    None,
    /// Their metadata, unless something else is asked for.
    Metadata,
    /// All of them.
    Object,
}

/// What `includeObject` asks for.
pub(super) fn included(option: &str) -> Result<Included, Status> {
    match option {
        "" | "Metadata" => Ok(Included::Metadata),
        "None" => Ok(Included::None),
        "Object" => Ok(Included::Object),
        other => Err(Status::bad_request(format_args!("unrecognized includeObject value: \"{other}\""))),
    }
}

/// The first form in an `Accept` header that this server offers.
pub(super) fn form(accept: &str) -> Result<Form, Status> {
    if accept.trim().is_empty() {
        return Ok(Form::Object);
    }
    accept.split(',').find_map(offered).ok_or_else(|| {
        let message =
            "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch";
        Status::new(406, "NotAcceptable", message).with_details(serde_json::json!({}))
    })
}

fn offered(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut form, mut version) = ("", "v1");
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "as" => form = value,
            "v" => version = value,
            _ => {}
        }
    }
    match (form, version) {
        ("", _) => Some(Form::Object),
        ("Table", "v1") => Some(Form::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") => Some(Form::Metadata),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Form, form};

    #[test]
    fn the_first_offered_form_is_taken() {
        assert_eq!(form("").unwrap(), Form::Object);
        assert_eq!(form("*/*").unwrap(), Form::Object);
        assert_eq!(form("application/vnd.kubernetes.protobuf, application/json").unwrap(), Form::Object);
        assert_eq!(form("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").unwrap(), Form::Table);
        assert_eq!(form("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json").unwrap(), Form::Object);
        assert_eq!(form("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").unwrap(), Form::Metadata);
        assert_eq!(form("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }
}
