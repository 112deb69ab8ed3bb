//! Creations, updates, patches and deletions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::Answer;
use super::duplicates::duplicates;
use super::encode;
use super::options::{ListOptions, Query};
use super::protobuf;
use super::read;
use super::rendering::Rendering;
use super::serve::{Exchange, Target};
use crate::records::Verb;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Asked, Deletion, Outcome, Part, Patch, Store, Update, Warnings, WriteTarget};

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
    pub(super) fn aim(&self, options: &str) -> Result<WriteTarget, Status> {
        Ok(WriteTarget {
            resource: self.target.resource.clone(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            part: self.part,
            dry_run: self.query.dry_run(options)?,
            asked: Asked {
                version: self.target.version.clone(),
                strictness: self.query.strictness(options)?,
                duplicates: self.duplicates(),
                warnings: Warnings::default(),
            },
        })
    }

    /// The fields that were sent twice.
    fn duplicates(&self) -> Vec<String> {
        let whole = matches!(self.content_type, "" | "application/json");
        if whole && self.target.resource.custom { duplicates(&self.body) } else { Vec::new() }
    }

    pub(super) fn object(&self) -> Result<Value, Status> {
        parse(self.content_type, &self.body, &self.target.resource.kind)
    }
}

/// Reads the object of a body that is to be of this kind.
pub(super) fn parse(content_type: &str, body: &[u8], kind: &str) -> Result<Value, Status> {
    if content_type == protobuf::CONTENT_TYPE {
        return protobuf::decode(body);
    }
    if !matches!(content_type, "" | "application/json") {
        return Err(Status::new(
            415,
            "UnsupportedMediaType",
            format_args!(
                "the body of the request was in an unknown format - accepted media types include: application/json, {}",
                protobuf::CONTENT_TYPE
            ),
        ));
    }
    serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format_args!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: {error}"
        ))
    })
}

/// Carries out a write.
pub(super) async fn write(
    exchange: &Exchange,
    verb: Verb,
    write: &Write<'_>,
    rendering: &Rendering,
) -> Result<Answer, Status> {
    let target = write.aim(match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => "DeleteOptions",
    })?;
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    let store = &exchange.cluster.store;
    let warnings = target.asked.warnings.clone();
    // Warnings come with refusals too.
    let mut answer = carry_out(store, verb, write, target, rendering).unwrap_or_else(Answer::from);
    answer.warnings = warnings.take();
    Ok(answer)
}

fn carry_out(
    store: &Store,
    verb: Verb,
    write: &Write<'_>,
    target: WriteTarget,
    rendering: &Rendering,
) -> Result<Answer, Status> {
    match verb {
        Verb::Create => {
            let object = write.object()?;
            let created = store.write(|state| state.create(&target, object))?;
            Ok(Answer::bytes(201, rendering.value(&created)))
        }
        Verb::Update => {
            let object = write.object()?;
            let (stored, created) = store.write(|state| state.put(&target, object))?;
            Ok(Answer::bytes(if created { 201 } else { 200 }, rendering.value(&stored)))
        }
        Verb::Patch => {
            let update = Update::Patch(Patch::parse(write.content_type, &write.body, target.resource.custom)?);
            let outcome = store.write(|state| state.update(&target, &update))?;
            Ok(Answer::bytes(200, rendering.value(outcome.object())))
        }
        _ => {
            let (deletion, dry_run) = deletion(write)?;
            let target = WriteTarget { dry_run: target.dry_run || dry_run, ..target };
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
    let (deletion, dry_run) = deletion(write)?;
    let aim = write.aim("DeleteOptions")?;
    let target = WriteTarget { dry_run: aim.dry_run || dry_run, ..aim };
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    // The answer shows what was found, as it was found.
    let (items, revision) = exchange.cluster.store.write(|state| {
        let revision = state.revision();
        let doomed: Vec<_> = state
            .live(&target.resource.name, write.target.namespace.as_deref())
            .filter_map(|(key, change)| Some((key.clone(), change.object.clone()?)))
            .filter(|(_, object)| selector.matches(object))
            .take(if options.limit > 0 { options.limit } else { usize::MAX })
            .collect();
        let mut items = Vec::new();
        for (key, found) in doomed {
            let target = WriteTarget { namespace: key.namespace, name: key.name, ..target.clone() };
            match state.delete(&target, &deletion) {
                Ok(_) => items.push(item_of(&found, rendering.resource.custom)),
                // An object may go with another one, a namespace's contents for instance.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
        Ok((items, revision))
    })?;
    let mut list = json!({
        "kind": rendering.resource.list_kind, "apiVersion": rendering.api_version,
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    });
    if rendering.resource.custom {
        list["metadata"]["continue"] = "".into();
    }
    Ok(Answer::bytes(200, encode::json(&list)))
}

/// An object as an item of a list: of a built-in kind, the list alone says which.
fn item_of(object: &Value, custom: bool) -> Value {
    let mut item = object.clone();
    if !custom && let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}

/// The conditions of a deletion, and whether it is a dry run.
fn deletion(write: &Write<'_>) -> Result<(Deletion, bool), Status> {
    if write.body.is_empty() {
        return Ok((Deletion::default(), false));
    }
    let options = write.object()?;
    let precondition = |field: &str| {
        let value = options.get("preconditions").and_then(|preconditions| preconditions.get(field));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let dry_run = options.get("dryRun").and_then(Value::as_array).is_some_and(|values| !values.is_empty());
    let deletion = Deletion { uid: precondition("uid"), resource_version: precondition("resourceVersion") };
    Ok((deletion, dry_run))
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
