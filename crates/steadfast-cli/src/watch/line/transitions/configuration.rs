//! `ConfigMaps` and Secrets.

use serde_json::{Value, json};

use super::{Row, Table};

pub(super) fn tables() -> Vec<Table> {
    vec![config_maps(), secrets()]
}

fn config_maps() -> Table {
    let rows: Vec<Row> = vec![
        (
            "kubectl",
            json!({"data": {"level": "info"}}),
            json!({"data": {"level": "debug"}}),
            "~ configmaps shop/settings data.level info→debug by kubectl",
        ),
        (
            "kubectl",
            json!({"data": {"a": "1"}}),
            json!({"data": {"b": "2", "a": null}}),
            "~ configmaps shop/settings −data.a, +data.b=2 by kubectl",
        ),
        (
            "kubectl",
            json!({"data": {"app.conf": "a\nb\nc\n"}}),
            json!({"data": {"app.conf": "a\nc\nd\ne\n"}}),
            "~ configmaps shop/settings data.app.conf +2 −1 lines by kubectl",
        ),
        (
            "kubectl",
            json!({"metadata": {"annotations": {"note": "x"}}}),
            json!({"metadata": {"annotations": {"note": "\u{1b}[2Jowned\n"}}}),
            "~ configmaps shop/settings annotation note x→\\u{1b}[2Jowned\\n by kubectl",
        ),
    ];
    Table::new("ConfigMap", "configmaps shop/settings", rows)
}

fn secrets() -> Table {
    let applied = |password: &str| json!({"data": {"password": password}}).to_string();
    let secret = |password: &str| -> Value {
        json!({
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied(password)}},
            "data": {"password": password},
        })
    };
    let rows: Vec<Row> = vec![
        (
            "kubectl-client-side-apply",
            secret("cGxhbnRlZDE="),
            secret("cGxhbnRlZDI="),
            "~ secrets shop/db data.password changed by kubectl-client-side-apply",
        ),
        (
            "kubectl",
            json!({"data": {"old": "cGxhbnRlZDE="}}),
            json!({"data": {"old": null, "new": "cGxhbnRlZDE="}}),
            "~ secrets shop/db −data.old, +data.new by kubectl",
        ),
        (
            "kubectl",
            json!({"data": {"password": "cGxhbnRlZDE="}}),
            json!({"metadata": {"labels": {"leak": "planted1"}}}),
            "~ secrets shop/db label +leak=*** by kubectl",
        ),
    ];
    Table::new("Secret", "secrets shop/db", rows)
}
