//! `ConfigMaps`, Secrets, custom resources, and text that a terminal would interpret.

use serde_json::{Value, json};

use super::assert_rows;
use crate::changes::columns::Column;
use crate::changes::describe::{Content, describe};
use crate::changes::kind::Kind;

#[test]
fn configuration_transitions() {
    assert_rows(
        "ConfigMap",
        &[
            (json!({"data": {"level": "info"}}), json!({"data": {"level": "debug"}}), "data.level info→debug"),
            (json!({"data": {"a": "1"}}), json!({"data": {"b": "2", "a": null}}), "−data.a, +data.b=2"),
            (
                json!({"data": {"app.conf": "a\nb\nc\n"}}),
                json!({"data": {"app.conf": "a\nc\nd\ne\n"}}),
                "data.app.conf +2 −1 lines",
            ),
            (json!({"data": {}}), json!({"immutable": true}), "immutable"),
            (
                json!({"metadata": {"annotations": {"note": "x"}}}),
                json!({"metadata": {"annotations": {"note": "\u{1b}[2Jowned\n"}}}),
                "annotation note x→\\u{1b}[2Jowned\\n",
            ),
        ],
    );
    let applied = |password: &str| json!({"data": {"password": password}}).to_string();
    let annotated = |password: &str| {
        json!({
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied(password)}},
            "data": {"password": password},
        })
    };
    assert_rows(
        "Secret",
        &[
            (json!({"data": {"password": "YQ=="}}), json!({"data": {"password": "Yg=="}}), "data.password changed"),
            (json!({"data": {}}), json!({"data": {"token": "Yg=="}}), "+data.token"),
            (json!({"data": {"token": "Yg=="}}), json!({"data": {"token": null}}), "−data.token"),
            (annotated("YQ=="), annotated("Yg=="), "data.password changed"),
            (json!({}), json!({"stringData": {"user": "ann"}, "type": "Opaque"}), "+stringData.user, +type=Opaque"),
        ],
    );
}

#[test]
fn custom_resource_transitions() {
    let ready =
        |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Synced"}]}});
    let applied = |applied_size: u32, size: u32| {
        let annotation = json!({"spec": {"size": applied_size}}).to_string();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": annotation});
        json!({"metadata": {"annotations": annotations}, "spec": {"size": size}})
    };
    assert_rows(
        "example.com/Widget",
        &[
            (ready("False"), ready("True"), "Ready False→True (Synced)"),
            (json!({"spec": {"size": 1}}), json!({"spec": {"size": 2}}), "spec.size 1→2"),
            (applied(1, 1), applied(2, 2), "spec.size 1→2"),
            (applied(1, 1), applied(2, 1), "annotation kubectl.kubernetes.io/last-applied-configuration changed"),
            (json!({"spec": {"tags": ["a"]}}), json!({"spec": {"tags": ["a", "b"]}}), "spec.tags [a]→[a b]"),
            (json!({"status": {"phase": "Creating"}}), json!({"status": {"phase": "Ready"}}), "phase Creating→Ready"),
            (
                json!({"spec": {"parts": [{"name": "x", "n": 1}]}}),
                json!({"spec": {"parts": [{"name": "x", "n": 2}]}}),
                "spec.parts[x].n 1→2",
            ),
            (json!({"metadata": {"name": "w"}}), json!({"status": {"syncedAt": "2026-01-01T00:00:00Z"}}), ""),
        ],
    );
    let column = Column { name: "Size".to_owned(), pattern: "spec/size".to_owned() };
    let text = |old: &Value, new: &Value| {
        let description =
            describe(&Kind::new("example.com", "Widget"), std::slice::from_ref(&column), old, new, Content::default());
        description.phrases.into_iter().map(|phrase| phrase.text).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(text(&json!({"spec": {"size": 1}}), &json!({"spec": {"size": 2}})), "Size 1→2");
}

#[test]
fn noise_and_secrets_are_shown_on_request() {
    let object =
        |version: &str, password: &str| json!({"metadata": {"resourceVersion": version}, "data": {"p": password}});
    let (old, new) = (object("1", "YQ=="), object("2", "Yg=="));
    let text = |content: Content| {
        let description = describe(&Kind::new("", "Secret"), &[], &old, &new, content);
        let text: Vec<String> = description.phrases.into_iter().map(|phrase| phrase.text).collect();
        (text.join(", "), description.noise_count)
    };
    assert_eq!(text(Content::default()), ("data.p changed".to_owned(), 1));
    let noise = Content { noise: true, ..Content::default() };
    assert_eq!(text(noise), ("data.p changed, metadata.resourceVersion 1→2".to_owned(), 1));
    let secrets = Content { secrets: true, ..Content::default() };
    assert_eq!(text(secrets), ("data.p YQ==→Yg==".to_owned(), 1));
}
