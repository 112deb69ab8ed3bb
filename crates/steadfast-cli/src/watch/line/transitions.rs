//! Whole lines of transitions of built-in kinds and custom resources, without the time.
//!
//! Each row contains all fields that a controller of Kubernetes writes in one update, including bookkeeping fields.

mod cluster;
mod configuration;
mod custom;
mod lifecycle;
mod network;
mod pods;
mod storage;
mod workloads;

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use steadfast::{Call, Scope};

use super::tests::{json_style, plain_style};
use super::{Counted, Style, Subject};
use crate::changes::apply::apply;
use crate::changes::columns::Column;
use crate::changes::describe::{Content, visible};
use crate::changes::diff::Detail;
use crate::changes::noise::is_noise;
use crate::changes::transitions::merge;
use crate::watch::owners::OwnerChain;
use crate::watch::watched::{DecodedEvent, EventTime};

/// Minimum number of transitions with a line.
const MIN_TRANSITIONS: usize = 60;

/// Field manager (empty if unknown), previous fields, changed fields as a merge patch, and the line. The line is empty
/// if only noise changed.
type Row = (&'static str, Value, Value, &'static str);

/// Transitions of one object.
struct Table {
    /// Group and kind: `apps/Deployment`.
    kind: &'static str,
    /// Resource, namespace and name: `deployments.apps shop/web`.
    object: &'static str,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Table {
    fn new(kind: &'static str, object: &'static str, rows: Vec<Row>) -> Self {
        Self { kind, object, columns: Vec::new(), rows }
    }

    fn subject(&self) -> Subject {
        let (resource, _) = self.object.split_once(' ').expect("a resource");
        subject(self.kind, resource, self.columns.clone())
    }

    /// Returns the object before and after the change of `row`.
    fn states(&self, row: &Row) -> (Value, Value) {
        let (manager, previous, patch, _) = row;
        let (_, object_path) = self.object.split_once(' ').expect("a name");
        let (namespace, name) = object_path
            .split_once('/')
            .map_or((Value::Null, object_path), |(namespace, name)| (json!(namespace), name));
        let state = |version: &str, time: &str, before: &Value| {
            let mut state = before.clone();
            let metadata = json!({"namespace": namespace, "name": name, "uid": "u-1", "resourceVersion": version});
            merge(&mut state, &json!({"metadata": metadata}));
            if !manager.is_empty() {
                let entry = json!({"manager": manager, "operation": "Update", "time": time});
                state["metadata"]["managedFields"] = json!([entry]);
            }
            state
        };
        let old = state("10", "2026-01-01T00:00:00Z", previous);
        let mut changed = old.clone();
        merge(&mut changed, patch);
        (old, state("11", "2026-01-01T00:00:05Z", &changed))
    }
}

fn tables() -> Vec<Table> {
    let modules = [
        workloads::tables(),
        pods::tables(),
        cluster::tables(),
        storage::tables(),
        network::tables(),
        configuration::tables(),
        custom::tables(),
    ];
    modules.into_iter().flatten().collect()
}

fn subject(kind: &str, resource: &str, columns: Vec<Column>) -> Subject {
    let (group, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
    let api_resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), resource);
    Subject { columns, ..Subject::new(resource.to_owned(), api_resource, Scope::all()) }
}

/// Returns the condition `kind` whose status was set `seconds` after the start of the minute.
fn condition(kind: &str, status: &str, reason: &str, seconds: u32) -> Value {
    let time = format!("2026-01-01T00:00:{seconds:02}Z");
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": time});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    condition
}

fn update(old: Value, object: Value) -> DecodedEvent<'static> {
    let (owners, time) = (OwnerChain::default(), EventTime::Now);
    let mut call = Call::default();
    call.changes = 1;
    DecodedEvent { name: "Updated", old: Some(old), object, deletion: None, call, owners, time }
}

fn without_time(line: &str) -> &str {
    line.split_once(' ').map_or("", |(_, rest)| rest)
}

#[test]
fn each_transition_has_exact_line() {
    let (mut with_line, mut differences) = (0, Vec::new());
    for table in tables() {
        let subject = table.subject();
        for row in &table.rows {
            let (old, new) = table.states(row);
            let line = plain_style().event(&subject, &update(old, new), None);
            let text = line.text.as_deref().map_or("", without_time);
            let expected = row.3;
            if text != expected {
                differences.push(format!("\n  expected {expected}\n  printed  {text}"));
            }
            let counted = if expected.is_empty() { Counted::Hidden } else { Counted::Changed };
            assert_eq!(line.counted, counted, "{expected}");
            with_line += usize::from(!expected.is_empty());
        }
    }
    assert!(differences.is_empty(), "{} lines differ: {}", differences.len(), differences.concat());
    assert!(with_line >= MIN_TRANSITIONS, "{with_line} transitions have a line");
}

#[test]
fn json_changes_return_new_object() {
    for table in tables() {
        let subject = table.subject();
        for row in &table.rows {
            let (old, new) = table.states(row);
            let changes_with = |content: Content| {
                let style = Style { content, ..json_style(false) };
                let line = style.event(&subject, &update(old.clone(), new.clone()), None).text.expect("a line");
                let line: Value = serde_json::from_str(&line).expect("valid JSON");
                let changes = line["changes"].as_array().expect("a list").clone();
                (changes, line["hidden"].as_u64().expect("a number"))
            };
            let everything = Content { noise: true, secrets: true };
            let (changes, hidden) = changes_with(everything);
            assert_eq!((apply(&old, &changes), hidden), (new.clone(), 0), "{}", row.3);

            let (significant, hidden) = changes_with(Content { noise: false, secrets: true });
            assert_eq!(significant.len() + usize::try_from(hidden).expect("a count"), changes.len(), "{}", row.3);
            let without_noise = apply(&old, &significant);
            let remaining = visible(&subject.kind, &without_noise, &new, Detail::Subtrees, everything).changes;
            assert!(remaining.iter().all(|change| is_noise(&subject.kind, change)), "{}: {remaining:?}", row.3);
        }
    }
}
