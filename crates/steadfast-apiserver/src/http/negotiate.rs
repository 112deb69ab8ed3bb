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
    /// Their metadata, unless something else is requested.
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

/// The first form in an `Accept` header that this server offers; custom resources have other words for a refusal.
pub(super) fn form(accept: &str, custom_resource: bool) -> Result<Form, Status> {
    if accept.trim().is_empty() {
        return Ok(Form::Object);
    }
    accept.split(',').find_map(offered).ok_or_else(|| {
        let json = accept.split(',').any(|range| range.split(';').next().is_some_and(|range| is_json(range.trim())));
        if json || custom_resource {
            let message = "only the following media types are accepted: application/json";
            return Status::new(406, "NotAcceptable", message);
        }
        let message =
            "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch";
        Status::new(406, "NotAcceptable", message).with_details(serde_json::json!({}))
    })
}

fn offered(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    if !is_json(parts.next()?) {
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

fn is_json(range: &str) -> bool {
    matches!(range, "application/json" | "application/*" | "*/*")
}

#[cfg(test)]
mod tests {
    use super::{Form, form};

    #[test]
    fn the_first_offered_form_is_taken() {
        assert_eq!(form("", false).unwrap(), Form::Object);
        assert_eq!(form("*/*", false).unwrap(), Form::Object);
        assert_eq!(form("application/vnd.kubernetes.protobuf, application/json", false).unwrap(), Form::Object);
        assert_eq!(form("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", false).unwrap(), Form::Table);
        assert_eq!(
            form("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", false).unwrap(),
            Form::Object
        );
        assert_eq!(
            form("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", false).unwrap(),
            Form::Metadata
        );
        assert_eq!(form("application/vnd.kubernetes.protobuf", false).unwrap_err().code, 406);
    }
}
