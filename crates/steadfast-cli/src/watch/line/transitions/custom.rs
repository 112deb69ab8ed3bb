//! Custom resources with conditions and printer columns, and their definitions.

use serde_json::{Value, json};

use super::{Row, Table, condition};
use crate::changes::columns::Column;

pub(super) fn tables() -> Vec<Table> {
    vec![widgets(), definitions()]
}

fn widgets() -> Table {
    let widget = |size: u32, ready: &str, generation: u32| -> Value {
        json!({
            "metadata": {"generation": generation}, "spec": {"size": size},
            "status": {"observedGeneration": generation, "syncedAt": "2026-01-01T00:00:00Z",
                "conditions": [condition("Ready", ready, "Synced", size)]},
        })
    };
    let rows: Vec<Row> = vec![
        (
            "kubectl",
            widget(1, "True", 1),
            json!({"metadata": {"generation": 2}, "spec": {"size": 2}}),
            "~ widgets.example.com shop/lamp Size 1→2 by kubectl",
        ),
        (
            "widget-controller",
            widget(1, "False", 1),
            json!({"status": {"conditions": [condition("Ready", "True", "Synced", 9)], "phase": "Ready"}}),
            "~ widgets.example.com shop/lamp phase none→Ready, Ready False→True (Synced) by widget-controller",
        ),
        (
            "widget-controller",
            widget(1, "False", 1),
            json!({"status": {"conditions": [condition("Ready", "False", "Broken", 9)]}}),
            "~ widgets.example.com shop/lamp Ready False (Synced→Broken) by widget-controller",
        ),
        (
            "kubectl",
            json!({"spec": {"parts": [{"name": "x", "n": 1}], "tags": ["a"]}}),
            json!({"spec": {"parts": [{"name": "x", "n": 2}, {"name": "y", "n": 5}], "tags": ["a", "b"]}}),
            "~ widgets.example.com shop/lamp spec.parts[x].n 1→2, +spec.parts[y].n=5, +spec.parts[y].name=y, \
             spec.tags [a]→[a b] by kubectl",
        ),
        (
            "widget-controller",
            widget(1, "True", 1),
            json!({"metadata": {"finalizers": ["widgets.example.com/lamp"]}}),
            "~ widgets.example.com shop/lamp finalizer +widgets.example.com/lamp by widget-controller",
        ),
        (
            "",
            json!({"metadata": {"finalizers": ["widgets.example.com/lamp"]}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:05Z", "deletionGracePeriodSeconds": 0}}),
            "~ widgets.example.com shop/lamp deletion requested (waits for widgets.example.com/lamp)",
        ),
        (
            "widget-controller",
            widget(1, "True", 1),
            json!({"status": {"observedGeneration": 2, "syncedAt": "2026-01-01T00:00:09Z"}}),
            "",
        ),
    ];
    let columns = vec![Column { name: "Size".to_owned(), pattern: "spec/size".to_owned() }];
    Table { columns, ..Table::new("example.com/Widget", "widgets.example.com shop/lamp", rows) }
}

fn definitions() -> Table {
    let rows: Vec<Row> = vec![
        (
            "kube-apiserver",
            json!({"status": {"conditions": []}}),
            json!({"status": {"acceptedNames": {"kind": "Widget", "plural": "widgets"}, "storedVersions": ["v1"],
                "conditions": [condition("NamesAccepted", "True", "NoConflicts", 1),
                    condition("Established", "True", "InitialNamesAccepted", 1)]}}),
            "~ customresourcedefinitions.apiextensions.k8s.io widgets.example.com stored version +v1, \
             NamesAccepted True (NoConflicts), Established True (InitialNamesAccepted) by kube-apiserver",
        ),
        (
            "kubectl",
            json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true}]}}),
            json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true},
                {"name": "v2", "served": true, "storage": false}]}}),
            "~ customresourcedefinitions.apiextensions.k8s.io widgets.example.com served version +v2 by kubectl",
        ),
    ];
    let object = "customresourcedefinitions.apiextensions.k8s.io widgets.example.com";
    Table::new("apiextensions.k8s.io/CustomResourceDefinition", object, rows)
}
