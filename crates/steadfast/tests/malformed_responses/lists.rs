//! Well-formed but incorrect lists.

use crate::server::{Server, item, list};
use crate::{DiagnosticLog, MEMORY_TEST_LOCK, assert_survives};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;
use steadfast::transport::Settings;
use steadfast::{InformerFactory, Scope};

fn list_body(metadata: &str, items: &str) -> String {
    format!(r#"{{"kind":"ConfigMapList","metadata":{{{metadata}}},"items":[{items}]}}"#)
}

#[tokio::test(start_paused = true)]
async fn unexpected_document_is_not_an_empty_list() {
    assert_survives("another list", list(r#"{"kind":"NodeList","metadata":{},"items":[]}"#), "\"NodeList\"").await;
    assert_survives("an object", list(r#"{"kind":"ConfigMap","metadata":{"name":"x"}}"#), "the response is not a list")
        .await;
    assert_survives("nothing", list("{}"), "the response is not a list").await;
    assert_survives("metadata", list(r#"{"metadata":{}}"#), "the response is not a list").await;
    assert_survives("an array", list("[]"), "malformed JSON at byte 0").await;
    assert_survives("a status", list(r#"{"kind":"Status","code":403,"reason":"Forbidden"}"#), "403 Forbidden").await;
    assert_survives("an empty body", list(""), "ended early").await;
}

#[tokio::test(start_paused = true)]
async fn endless_paged_list_is_abandoned() {
    let same = list_body(r#""resourceVersion":"10","continue":"next","remainingItemCount":-5"#, "");
    assert_survives("the same token", list(&same), "the list does not end").await;
    let long = list_body(&format!(r#""resourceVersion":"10","continue":"{}""#, "x".repeat(200_000)), "");
    assert_survives("a token of 200 kB", list(&long), "the continue token has 200000 bytes").await;
    let long = list_body(&format!(r#""resourceVersion":"{}""#, "1".repeat(200_000)), "");
    assert_survives("a version of 200 kB", list(&long), "malformed").await;
}

/// Returns an informer's contents, diagnostics and next request after one list.
async fn informer_after_list(items: &str, version: &str) -> (Vec<String>, String, String) {
    informer_after_body(&list_body(&format!(r#""resourceVersion":"{version}""#), items)).await
}

async fn informer_after_body(body: &str) -> (Vec<String>, String, String) {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    server.attack(Some(list(body)));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).streamed_lists(false);
    let informer = builder.start().expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&informer);
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the list is valid");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let names = informer.snapshot().iter().map(|entry| entry.key().name().to_owned()).collect();
    let watch = server.requests().into_iter().find(|requests| requests.contains("watch=true")).unwrap_or_default();
    (names, watch, diagnostics.text())
}

#[tokio::test(start_paused = true)]
async fn version_is_sent_back_verbatim_and_escaped() {
    let (_, watch, _) = informer_after_list("", r#"1&limit=0 \"\n"#).await;
    assert!(watch.contains("&resourceVersion=1%26limit%3D0%20%22%0A&"), "{watch}");
}

/// Go's `omitempty` leaves out empty items: kube-apiserver 1.30 does so with `ValidatingAdmissionPolicy` lists.
#[tokio::test(start_paused = true)]
async fn list_without_items_is_empty() {
    let body = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"529"}}"#;
    let (names, watch, _) = informer_after_body(body).await;
    assert!(names.is_empty() && watch.contains("&resourceVersion=529&"), "{names:?} {watch}");
    let unversioned = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{}}"#;
    assert_survives("no version", list(unversioned), "the response is not a list").await;
    let other = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"529"}}"#;
    assert_survives("another kind", list(other), "the response is not a list").await;
}

#[tokio::test(start_paused = true)]
async fn duplicate_list_item_is_cached_once() {
    let twice = [item("a", "default", "1"), item("a", "default", "2")].join(",");
    assert_eq!(informer_after_list(&twice, "10").await.0, ["a"]);
    let same = [item("a", "default", "1"), item("b", "default", "1")].join(",");
    assert_eq!(informer_after_list(&same, "10").await.0, ["a", "b"]);
    let doubled = r#"{"metadata":{"name":"x"},"metadata":{"name":"y","name":"z","uid":"1","resourceVersion":"1"}}"#;
    let (names, _, diagnostics) = informer_after_list(doubled, "10").await;
    assert!(names == ["z"] || diagnostics.contains('z'), "{names:?}\n{diagnostics}");
}

#[tokio::test(start_paused = true)]
async fn foreign_namespace_objects_are_skipped_and_reported() {
    let items = [item("a", "default", "1"), item("b", "kube-system", "2")].join(",");
    let (names, _, diagnostics) = informer_after_list(&items, "10").await;
    assert_eq!(names, ["a"]);
    assert!(diagnostics.contains("kube-system/b is not in the namespace default that was requested"), "{diagnostics}");
}

#[tokio::test(start_paused = true)]
async fn any_object_name_is_accepted() {
    let long = format!(r"\u001b[31m{}", "n".repeat(1 << 20));
    let (names, _, diagnostics) = informer_after_list(&item(&long, "kube-system", "1"), "10").await;
    assert!(names.is_empty() && diagnostics.contains(r"kube-system/\u{1b}[31mnnn"), "{}", diagnostics.len());
    assert!(diagnostics.len() < 4096 && !diagnostics.contains('\u{1b}'), "{} bytes", diagnostics.len());
    assert_eq!(informer_after_list(&item(&long, "default", "1"), "10").await.0[0].len(), (1 << 20) + 5);
}
