//! Description of a change, worded for the kind of the object.
//!
//! Each module of `describe` knows some kinds. It adds phrases for the fields that it knows, and covers fields that
//! follow from a phrase. Metadata and conditions are described for all kinds. Other changed fields appear with their
//! paths.

mod batch;
mod conditions;
mod config;
mod containers;
mod metadata;
mod network;
mod node;
mod other;
mod pod;
mod scaling;
mod storage;
mod workload;

use std::borrow::Cow;

use serde_json::Value;

use super::columns::Column;
use super::diff::{Change, Detail, diff};
use super::kind::Kind;
use super::manager;
use super::noise::is_noise;
use super::phrases::{DescriptionBuilder, HealthEffect, Phrase, transition};
use super::secrets::Redaction;
use super::value_text::short;

/// Optional content of a description.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    /// Includes noise.
    pub(crate) noise: bool,
    /// Includes the values of Secrets.
    pub(crate) secrets: bool,
}

impl Content {
    /// Returns the redaction for states of an object of `kind`; `None` if the states have no secret values, or if all
    /// values are shown.
    pub(crate) fn redaction(self, kind: &Kind, states: &[&Value]) -> Option<Redaction> {
        if self.secrets { None } else { Redaction::for_kind(kind, states) }
    }
}

/// Description of the change of an object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Description {
    /// Phrases; empty if all changes are noise.
    pub(crate) phrases: Vec<Phrase>,
    /// Number of changed fields that are noise.
    pub(crate) noise_count: usize,
    /// Field managers that made the change, as far as known.
    pub(crate) managers: Vec<String>,
}

/// Printed changes of an object, and the number of changes that are noise.
pub(crate) struct Visible<'a> {
    /// The printed changes. They include noise only if the content does.
    pub(crate) changes: Vec<Change<'a>>,
    /// Number of changed fields that are noise.
    pub(crate) noise_count: usize,
}

/// Returns the changes from `old` to `new` that `content` includes, without the values of Secrets.
pub(crate) fn visible<'a>(
    kind: &Kind,
    old: &'a Value,
    new: &'a Value,
    detail: Detail,
    content: Content,
) -> Visible<'a> {
    let mut changes = diff(old, new, detail);
    let mut noise_count = 0;
    changes.retain(|change| {
        let is_noise = is_noise(kind, change);
        noise_count += usize::from(is_noise);
        content.noise || !is_noise
    });
    if let Some(redaction) = content.redaction(kind, &[old, new]) {
        for change in &mut changes {
            let path = change.path.clone();
            for value in [&mut change.old, &mut change.new].into_iter().flatten() {
                *value = Cow::Owned(redaction.value(&path, value));
            }
        }
    }
    Visible { changes, noise_count }
}

/// Describes the change of an object from `old` to `new`.
pub(crate) fn describe(kind: &Kind, columns: &[Column], old: &Value, new: &Value, content: Content) -> Description {
    let Visible { changes, noise_count } = visible(kind, old, new, Detail::Leaves, content);
    let meaningful: Vec<&Change<'_>> = changes.iter().filter(|change| !is_noise(kind, change)).collect();
    let managers = manager::managers(old, new, &meaningful).into_iter().map(str::to_owned).collect();
    if changes.is_empty() {
        return Description { phrases: Vec::new(), noise_count, managers };
    }
    let redaction = content.redaction(kind, &[old, new]);
    let redacted =
        |object| redaction.as_ref().map_or(Cow::Borrowed(object), |redaction| Cow::Owned(redaction.object(object)));
    let (old, new) = (redacted(old), redacted(new));
    let mut description = DescriptionBuilder::new(&old, &new, &changes);
    metadata::describe_lifecycle(&mut description);
    describe_kind(kind, &mut description);
    for column in columns {
        describe_column(column, &mut description);
    }
    conditions::describe(&mut description);
    metadata::describe(&mut description);
    Description { phrases: description.finish(), noise_count, managers }
}

fn describe_kind(kind: &Kind, description: &mut DescriptionBuilder<'_>) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => pod::describe(description),
        ("", "Node") => node::describe(description),
        ("apps", "Deployment") => workload::describe_deployment(description),
        ("apps", "StatefulSet") => workload::describe_stateful_set(description),
        ("apps", "DaemonSet") => workload::describe_daemon_set(description),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => workload::describe_replica_set(description),
        ("batch", "Job") => batch::describe_job(description),
        ("batch", "CronJob") => batch::describe_cron_job(description),
        ("", "Service") => network::describe_service(description),
        ("", "Endpoints") => network::describe_endpoints(description),
        ("discovery.k8s.io", "EndpointSlice") => network::describe_endpoint_slice(description),
        ("networking.k8s.io", "Ingress") => network::describe_ingress(description),
        ("", "PersistentVolumeClaim") => storage::describe_claim(description),
        ("", "PersistentVolume") => storage::describe_volume(description),
        ("storage.k8s.io", "VolumeAttachment") => storage::describe_attachment(description),
        ("", "ConfigMap" | "Secret") => config::describe_data(description),
        ("autoscaling", "HorizontalPodAutoscaler") => scaling::describe_autoscaler(description),
        ("policy", "PodDisruptionBudget") => scaling::describe_disruption_budget(description),
        ("", "ResourceQuota") => scaling::describe_quota(description),
        ("" | "events.k8s.io", "Event") => other::describe_event(description),
        ("coordination.k8s.io", "Lease") => other::describe_lease(description),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => other::describe_binding(description),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => other::describe_definition(description),
        _ => other::describe_phase(description),
    }
}

fn describe_column(column: &Column, description: &mut DescriptionBuilder<'_>) {
    let (old, new) = (column.value(description.old), column.value(description.new));
    if old != new && !description.take_changes(&column.pattern).is_empty() {
        let text = transition(&column.name, &short(old), &short(new));
        description.add(HealthEffect::Neutral, text);
    }
}
