//! Creations, updates, patches and deletions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::Answer;
use super::options::{ListOptions, Query};
use super::protobuf;
use super::read;
use super::rendering::Rendering;
use super::serve::{Exchange, Target};
use super::{deletions, duplicates, list};
use crate::apply::{self, FieldManager};
use crate::records::Verb;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Asked, Outcome, Part, Patch, Store, Strictness, Update, Warnings, WriteTarget};

/// The longest name that a manager of fields may have.
const MANAGER_BYTES: usize = 128;

/// The content type of what is applied.
const APPLY: &str = "application/apply-patch+yaml";

/// A write's target, content type and body.
pub(super) struct Write<'a> {
    pub(super) target: &'a Target,
    pub(super) name: &'a str,
    pub(super) part: Part,
    pub(super) query: &'a Query,
    pub(super) content_type: &'a str,
    /// The client's name for itself.
    pub(super) user_agent: &'a str,
    pub(super) body: Bytes,
}

impl Write<'_> {
    /// What it is aimed at; `options` is the kind of its options, where they are in the query.
    pub(super) fn aim(&self, options: Option<&str>) -> Result<WriteTarget, Status> {
        let strictness = options.map_or(Ok(Strictness::Ignore), |options| self.query.strictness(options))?;
        Ok(WriteTarget {
            resource: self.target.resource.clone(),
            namespace: self.target.namespace.clone().unwrap_or_default(),
            name: self.name.to_owned(),
            part: self.part,
            dry_run: options.map_or(Ok(false), |options| self.query.dry_run(options))?,
            asked: Asked {
                version: self.target.version.clone(),
                strictness,
                flaws: if strictness == Strictness::Ignore { Vec::new() } else { self.flaws() },
                warnings: Warnings::default(),
                manager: options.map(|options| self.manager(options)).transpose()?,
            },
        })
    }

    /// What is wrong with the text of the body that is not seen in what is read from it.
    fn flaws(&self) -> Vec<String> {
        match self.content_type {
            "" | "application/json" | "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                duplicates::duplicates(&self.body)
            }
            "application/json-patch+json" => duplicates::of_operations(&self.body),
            APPLY => duplicates::of_applied(&self.body),
            _ => Vec::new(),
        }
    }

    /// Who writes: as the request says, or else by the client's name for itself.
    fn manager(&self, options: &str) -> Result<FieldManager, Status> {
        let name = self.query.text("fieldManager");
        let applies = self.applies();
        let refuse = |field: &str, why: String| Err(Status::invalid("meta.k8s.io", options, "", &[(field, why)]));
        if options == "PatchOptions" && applies && name.is_empty() {
            return refuse("fieldManager", "Required value: is required for apply patch".to_owned());
        }
        if options == "PatchOptions" && !applies && self.query.flag("force").is_some() {
            return refuse("force", "Forbidden: may not be specified for non-apply patch".to_owned());
        }
        if name.len() > MANAGER_BYTES {
            return refuse("fieldManager", format!("Too long: may not be more than {MANAGER_BYTES} bytes"));
        }
        if let Some(letter) = name.chars().find(|letter| letter.is_control()) {
            let why = format!("Invalid value: {name:?}: should only contain printable characters, found {letter:?}");
            return refuse("fieldManager", why);
        }
        let name = if name.is_empty() { name_of_client(self.user_agent) } else { name.to_owned() };
        let force = self.query.flag("force") == Some(true);
        Ok(FieldManager { name, subresource: "", force })
    }

    fn applies(&self) -> bool {
        self.content_type == APPLY
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

/// What stands before the first slash of a user agent.
fn name_of_client(user_agent: &str) -> String {
    let letters = user_agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control());
    let mut name = String::new();
    for letter in letters {
        if name.len() + letter.len_utf8() > MANAGER_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}

/// Carries out a write.
pub(super) async fn write(
    exchange: &Exchange,
    verb: Verb,
    write: &Write<'_>,
    rendering: &Rendering,
) -> Result<Answer, Status> {
    let target = write.aim(match verb {
        Verb::Create => Some("CreateOptions"),
        Verb::Update => Some("UpdateOptions"),
        Verb::Patch => Some("PatchOptions"),
        _ => None,
    })?;
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    let store = &exchange.cluster.store;
    let warnings = target.asked.warnings.clone();
    Ok(Answer::warned(carry_out(store, verb, write, target, rendering), &warnings))
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
        Verb::Patch if write.applies() => {
            let applied = apply::parse(&write.body)?;
            let (stored, created) = store.write(|state| state.apply(&target, &applied))?;
            Ok(Answer::bytes(if created { 201 } else { 200 }, rendering.value(&stored)))
        }
        Verb::Patch => {
            let update = Update::Patch(Patch::parse(write.content_type, &write.body, target.resource.custom)?);
            let outcome = store.write(|state| state.update(&target, &update))?;
            Ok(Answer::bytes(200, rendering.value(outcome.object())))
        }
        _ => {
            let options = deletions::read(write)?;
            let target = WriteTarget { dry_run: options.dry_run, ..target };
            options.warn(&target);
            let outcome = store.write(|state| state.delete(&target, &options.deletion))?;
            let mut answer = deleted(&target, &outcome, rendering);
            // It is not gone yet, and whoever keeps no dependents waits for them.
            if matches!(outcome, Outcome::Stored(_)) && options.takes_dependents {
                answer.code = 202;
            }
            Ok(answer)
        }
    }
}

/// Deletes every object of a collection that is selected.
pub(super) async fn delete_collection(
    exchange: &Exchange,
    write: &Write<'_>,
    options: &ListOptions,
    selector: &Selector,
    rendering: Rendering,
) -> Result<Answer, Status> {
    let how = deletions::read(write)?;
    let target = WriteTarget { dry_run: how.dry_run, ..write.aim(None)? };
    how.warn(&target);
    let deleted = delete_found(exchange, write, (&target, &how), options, selector, rendering).await;
    Ok(Answer::warned(deleted, &target.asked.warnings))
}

async fn delete_found(
    exchange: &Exchange,
    write: &Write<'_>,
    (target, how): (&WriteTarget, &deletions::Options),
    options: &ListOptions,
    selector: &Selector,
    rendering: Rendering,
) -> Result<Answer, Status> {
    read::etcd_answers(&exchange.cluster, exchange.replica).await?;
    // The answer shows what was found, as it was found. It is found as by a list in pages, for which versions are exact.
    let limit = if options.limit > 0 { options.limit } else { usize::MAX };
    let options = ListOptions { limit, ..options.clone() };
    let page = list::find(exchange, write.target, &options, selector, &rendering).await?;
    exchange.cluster.store.write(|state| {
        for found in &page.objects {
            let namespace = found.namespace.clone().unwrap_or_default();
            let target = WriteTarget { namespace, name: found.name.clone(), ..target.clone() };
            match state.delete(&target, &how.deletion) {
                // An object may go with another one, a namespace's contents for instance.
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(list::answer(exchange, page, rendering, None))
}

/// Most deletions are answered with a `Status`; a few kinds, and what is still there, with the object.
fn deleted(target: &WriteTarget, outcome: &Outcome, rendering: &Rendering) -> Answer {
    let resource = &target.resource.name;
    let returns_object = match resource.group() {
        "" => matches!(
            resource.resource(),
            "namespaces"
                | "nodes"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "storage.k8s.io" => true,
        _ => false,
    };
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
