//! Responses that injected faults dictate.

use super::negotiate::Encoding;
use super::response::ApiResponse;
use super::route::Route;
use super::watch;
use crate::faults;
use crate::records::{RequestRecord, Verb};
use crate::status::Status;

/// Creates the response that a rule of a fault dictates.
pub(super) fn injected_response(
    response: &faults::InjectedResponse,
    record: &RequestRecord,
    encoding: Encoding,
) -> ApiResponse {
    match response {
        faults::InjectedResponse::Status(status) => status.clone().into(),
        faults::InjectedResponse::InStream(status) => match record.verb {
            Verb::Watch | Verb::StreamedList => watch::error_event(status, encoding),
            _ => status.clone().into(),
        },
        faults::InjectedResponse::ErrorObject(object) => match record.verb {
            Verb::Watch | Verb::StreamedList => watch::error_object(object, encoding),
            _ => Status::of_code(500).into(),
        },
        faults::InjectedResponse::Forbidden => forbidden(record).into(),
    }
}

/// Creates a `403` status with the message of a real server.
fn forbidden(record: &RequestRecord) -> Status {
    let user = "system:anonymous";
    let verb = record.verb.as_str();
    let Some(resource) = &record.resource else {
        return Status::of_code(403)
            .with_message(format_args!("forbidden: User \"{user}\" cannot {verb} path \"{}\"", record.path));
    };
    let (name, scope) = match Route::parse(&record.path) {
        Route::Resource(path) => {
            let scope = path.namespace.map(|namespace| format!("in the namespace \"{namespace}\""));
            (path.name.unwrap_or_default(), scope.unwrap_or_else(|| "at the cluster scope".to_owned()))
        }
        _ => (String::new(), "at the cluster scope".to_owned()),
    };
    let detail = format!(
        "User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\" {scope}",
        resource.resource(),
        resource.group()
    );
    Status::forbidden(resource, &name, &detail)
}
