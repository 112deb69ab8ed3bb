//! Invalid protobuf bodies, and the objects in valid ones.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject};
use steadfast::transport::Settings;
use steadfast::{InformerFactory, Scope};

use crate::server::{Attack, Server};
use crate::{DiagnosticLog, MEMORY_TEST_LOCK, OBJECT_LIMIT_BYTES, assert_recovers, assert_survives_in_protobuf};

const EITHER: &str = "accept: application/vnd.kubernetes.protobuf,application/json";
const JSON_ALONE: &str = "accept: application/json";

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.kubernetes.protobuf";

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

pub(crate) fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(value.len()), value].concat()
}

fn enveloped(kind: &str, message: &[u8]) -> Vec<u8> {
    enveloped_as("v1", kind, message)
}

pub(crate) fn enveloped_as(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &types), field(2, message)].concat()
}

/// Returns a config map with this name and further fields.
fn object(name: &str, more: &[u8]) -> Vec<u8> {
    let metadata = [field(1, name.as_bytes()), field(3, b"default"), field(5, name.as_bytes()), field(6, b"9")];
    [field(1, &metadata.concat()), more.to_vec()].concat()
}

fn list_of(items: &[u8]) -> Vec<u8> {
    enveloped("ConfigMapList", &[field(1, &field(2, b"10")), items.to_vec()].concat())
}

pub(crate) fn list(body: &[u8]) -> Attack {
    let head = format!("{HEAD}\r\ncontent-length: {}\r\n\r\n", body.len());
    Attack { bytes: [head.as_bytes(), body].concat(), ..Attack::default() }
}

fn watch(events: &[u8]) -> Attack {
    let head = format!("{HEAD};stream=watch\r\ncontent-length: {}\r\n\r\n", events.len());
    Attack { is_watch: true, bytes: [head.as_bytes(), events].concat(), ..Attack::default() }
}

fn event(what: &str, object: &[u8]) -> Vec<u8> {
    let event = [field(1, what.as_bytes()), field(2, &field(1, object))].concat();
    [&(event.len() as u32).to_be_bytes()[..], &event].concat()
}

#[tokio::test(start_paused = true)]
async fn list_with_wrong_lengths_is_abandoned() {
    let beyond = list_of(&[0x12, 0xff, 0x7f, 0]);
    assert_survives_in_protobuf("an item that is longer than its list", list(&beyond), "malformed protobuf").await;
    let huge = list_of(&[[0x12].as_slice(), &[0xff; 9], &[1]].concat());
    assert_survives_in_protobuf("an item of 2^64 bytes", list(&huge), "malformed protobuf").await;
    let groups = list_of(&[0x13; 1000]);
    assert_survives_in_protobuf("groups", list(&groups), "malformed protobuf").await;
    let types = field(1, &[field(1, b"v1"), field(2, b"ConfigMapList")].concat());
    let metadata = [[0x0a].as_slice(), &varint(2 << 20), b"1"].concat();
    let long = [b"k8s\0".as_slice(), &types, &[0x12], &varint(3 << 20), &metadata].concat();
    assert_survives_in_protobuf("metadata of 2 MB", list(&long), "longer than the limit").await;
    let mut cut = list_of(&field(2, &object("a", &[])));
    cut.truncate(cut.len() - 3);
    assert_survives_in_protobuf("one that is cut off", list(&cut), "ended early").await;
}

#[tokio::test(start_paused = true)]
async fn unexpected_message_is_not_an_empty_list() {
    let other = enveloped("NodeList", &field(1, &[]));
    assert_survives_in_protobuf("another list", list(&other), "\"NodeList\"").await;
    assert_survives_in_protobuf("an object", list(&enveloped("ConfigMap", &object("a", &[]))), "is not a list").await;
    assert_survives_in_protobuf("nothing", list(b"k8s\0"), "ended early").await;
    assert_survives_in_protobuf("no metadata", list(&enveloped("ConfigMapList", &[])), "the response is not a list")
        .await;
    assert_survives_in_protobuf("JSON", list(b"{\"kind\":\"ConfigMapList\"}"), "malformed protobuf at byte 0").await;
    let status = [field(4, b"Forbidden"), vec![6 << 3, 0x93, 3]].concat();
    assert_survives_in_protobuf("a status", list(&enveloped("Status", &status)), "403 Forbidden").await;
}

#[tokio::test(start_paused = true)]
async fn malformed_protobuf_events_are_reported() {
    assert_survives_in_protobuf("no object", watch(&[0, 0, 0, 0]), "a watch record without an object").await;
    let renamed = event("RENAMED", &enveloped("ConfigMap", &[]));
    assert_survives_in_protobuf("no such type", watch(&renamed), "unknown type of watch record").await;
    let damaged = event("ADDED", &enveloped("ConfigMap", &[0x0a, 0x7f, 0]));
    assert_survives_in_protobuf("metadata that lie", watch(&damaged), "malformed protobuf").await;
    let more = Attack { endless: vec![0; 16_384], pause: Duration::from_millis(20), ..Attack::default() };
    let head = format!("{HEAD};stream=watch\r\n\r\n").into_bytes();
    let endless = Attack { is_watch: true, bytes: [head, vec![0xff; 4]].concat(), ..more };
    let too_long = format!("the limit is {OBJECT_LIMIT_BYTES} bytes");
    assert_survives_in_protobuf("four gigabytes", endless, &too_long).await;
}

#[tokio::test(start_paused = true)]
async fn response_encoding_follows_content_type() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    // Field `data`, number 2: a map as repeated entries.
    let data = field(2, &[field(1, b"k"), field(2, "zwölf".as_bytes())].concat());
    server.attack(Some(list(&list_of(&[field(2, &object("a", &data)), field(2, &object("b", &[]))].concat()))));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).streamed_lists(false);
    let informer = builder.protobuf(true).start().expect("the informer starts");
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the list is valid");
    let lister = informer.lister().expect("the informer has synced");
    let a = lister.get("default", "a").expect("the object decodes").expect("the object exists");
    assert_eq!(a.data.as_ref().and_then(|data| data.get("k")).map(String::as_str), Some("zwölf"));
    assert_eq!((lister.len(), a.version().as_str()), (2, "9"));
    let requests = server.requests().join("\n");
    assert!(requests.contains(EITHER), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn only_typed_objects_request_protobuf() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let typed = factory.builder::<ConfigMap>(Scope::all()).streamed_lists(false).start().expect("the informer starts");
    typed.wait_for_sync(Duration::from_secs(60)).await.expect("the list is valid");
    let requests = server.requests().join("\n");
    assert!(requests.contains(EITHER), "{requests}");

    let server = Server::default();
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let kind = ApiResource::erase::<ConfigMap>(&());
    let builder = factory.builder_with::<DynamicObject>(&kind, Scope::all()).streamed_lists(false);
    let dynamic = builder.start().expect("the informer starts");
    dynamic.wait_for_sync(Duration::from_secs(60)).await.expect("the list is valid");
    let requests = server.requests().join("\n");
    assert!(requests.contains(JSON_ALONE) && !requests.contains("protobuf"), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_protobuf_falls_back_to_json() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    server.attack(Some(list(b"a page of something between")));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).streamed_lists(false);
    let informer = builder.start().expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&informer);
    let reported = diagnostics.wait_for("requesting JSON temporarily");
    tokio::time::timeout(Duration::from_secs(60), reported).await.expect("the problem is reported");
    let before = server.requests().len();
    server.attack(None);
    assert_recovers("protobuf that is spoilt", &informer, &diagnostics).await;
    let requests = server.requests()[before..].join("\n");
    assert!(requests.contains(JSON_ALONE) && !requests.contains("protobuf"), "{requests}");
}
