//! Creations, updates, patches and deletions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::Answer;
use super::encode;
use super::options::{ListOptions, Query};
use super::protobuf;
use super::read;
use super::rendering::Rendering;
use super::serve::{Exchange, Target};
use crate::records::Verb;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Deletion, Outcome, Part, Patch, Update, WriteTarget};

/// A write's target, content type and body.
pub(super) struct Write<'a> {
    pub(super) target: &'a Target,
    pub(super) name: &'a str,
    pub(super) part: Part,
    pub(super) query: &'a Query,
    pub(super) content_type: &'a str,
    pub(super) body: Bytes,
}

impl Write<'_> {
    fn aim(&self) -> Result<WriteTarget, Status> {
        Ok(WriteTarget {
            resource: self.target.resource.clone(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            part: self.part,
            dry_run: self.query.dry_run()?,
        })
    }

    fn object(&self) -> Result<Value, Status> {
        if self.content_type == protobuf::CONTENT_TYPE {
            return protobuf::decode(&self.body);
        }
        if !matches!(self.content_type, "" | "application/json") {
            return Err(Status::new(
                415,
                "UnsupportedMediaType",
                format_args!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json (got {})",
                    self.content_type
                ),
            ));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            Status::bad_request(format_args!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
                 error: {error}",
                self.target.resource.kind
            ))
        })
    }
}

/// Carries out a write.
pub(super) async fn write(
    exchange: &Exchange,
    verb: Verb,
    write: &Write<'_>,
    rendering: &Rendering,
) -> Result<Answer, Status> {
    let target = write.aim()?;
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    let store = &exchange.cluster.store;
    match verb {
        Verb::Create => {
            let object = write.object()?;
            let created = store.write(|state| state.create(&target, object))?;
            Ok(Answer::bytes(201, rendering.value(&created)))
        }
        Verb::Update => {
            let update = Update::Replace(write.object()?);
            let outcome = store.write(|state| state.update(&target, &update))?;
            Ok(Answer::bytes(200, rendering.value(outcome.object())))
        }
        Verb::Patch => {
            let update = Update::Patch(Patch::parse(write.content_type, &write.body, target.resource.custom)?);
            let outcome = store.write(|state| state.update(&target, &update))?;
            Ok(Answer::bytes(200, rendering.value(outcome.object())))
        }
        _ => {
            let deletion = deletion(write)?;
            let outcome = store.write(|state| state.delete(&target, &deletion))?;
            Ok(deleted(&target, &outcome, rendering))
        }
    }
}

/// Deletes every object of a collection that is selected.
pub(super) async fn delete_collection(
    exchange: &Exchange,
    write: &Write<'_>,
    options: &ListOptions,
    selector: &Selector,
    rendering: &Rendering,
) -> Result<Answer, Status> {
    let target = write.aim()?;
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    let (items, revision) = exchange.cluster.store.write(|state| {
        let doomed: Vec<_> = state
            .live(&target.resource.name, write.target.namespace.as_deref())
            .filter(|(_, change)| change.object.as_deref().is_some_and(|object| selector.matches(object)))
            .map(|(key, _)| key.clone())
            .take(if options.limit > 0 { options.limit } else { usize::MAX })
            .collect();
        let mut items = Vec::new();
        for key in doomed {
            let target = WriteTarget { namespace: key.namespace, name: key.name, ..target.clone() };
            // An object may go with another one, a namespace's contents for instance.
            if let Ok(outcome) = state.delete(&target, &Deletion::default()) {
                items.push(Value::clone(outcome.object()));
            }
        }
        (items, state.revision())
    });
    let list = json!({
        "kind": rendering.resource.list_kind, "apiVersion": rendering.api_version,
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    });
    Ok(Answer::bytes(200, encode::json(&list)))
}

fn deletion(write: &Write<'_>) -> Result<Deletion, Status> {
    if write.body.is_empty() {
        return Ok(Deletion::default());
    }
    let options = write.object()?;
    let precondition = |field: &str| {
        let value = options.get("preconditions").and_then(|preconditions| preconditions.get(field));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Ok(Deletion { uid: precondition("uid"), resource_version: precondition("resourceVersion") })
}

/// Most deletions are answered with a `Status`; a few kinds, and what is still there, with the object.
fn deleted(target: &WriteTarget, outcome: &Outcome, rendering: &Rendering) -> Answer {
    let resource = &target.resource.name;
    let returns_object = resource.group().is_empty()
        && matches!(resource.resource(), "pods" | "namespaces" | "services" | "persistentvolumes" | "nodes");
    if returns_object || matches!(outcome, Outcome::Stored(_)) {
        return Answer::bytes(200, rendering.value(outcome.object()));
    }
    let mut details = crate::status::object_details(resource, &target.name);
    details["uid"] = outcome.object().pointer("/metadata/uid").cloned().unwrap_or_default();
    Answer::json(
        200,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
    )
}
