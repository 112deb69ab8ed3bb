//! Incorrect metadata and objects, which would corrupt a delta relist.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use steadfast::transport::Settings;
use steadfast::{Event, InformerFactory, ReflectorSettings, Scope};

use crate::messages::{self, enveloped_as, field};
use crate::server::{Attack, Server, endless, item, list, response, watch};
use crate::{
    ALLOCATOR, DiagnosticLog, MAX_ATTACK_MEMORY, MEMORY_TEST_LOCK, OBJECT_LIMIT_BYTES, REPORT_TIMEOUT, assert_recovers,
};

/// Text in the head of metadata requests only.
const METADATA_REQUEST: &str = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1\r\n";

/// Text in the head of requests for an object at an exact version only.
const EXACT_VERSION_REQUEST: &str = "resourceVersionMatch=Exact";

const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n";

fn settings() -> ReflectorSettings {
    one_may_differ_in(1)
}

fn one_may_differ_in(delta_objects_per_difference: usize) -> ReflectorSettings {
    ReflectorSettings {
        delta_relists: Some(true),
        delta_min_objects: 1,
        delta_objects_per_difference,
        ..ReflectorSettings::default()
    }
}

fn metadata_of(kind: &str, version: &str, items: &str) -> String {
    format!(r#"{{"kind":"{kind}","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#)
}

/// Returns a metadata list of `items` at version 12.
fn metadata(items: &[String]) -> Attack {
    let body = metadata_of("PartialObjectMetadataList", "12", &items.join(","));
    Attack { required_text: METADATA_REQUEST, ..list(&body) }
}

fn state(items: &[String]) -> Attack {
    Attack { required_text: EXACT_VERSION_REQUEST, ..list(&metadata_of("ConfigMapList", "12", &items.join(","))) }
}

/// Returns an object whose version differs from the cached one.
fn changed(name: &str, uid: &str) -> String {
    item(name, "default", uid).replace(r#""resourceVersion":"5""#, r#""resourceVersion":"11""#)
}

fn cached_items() -> Vec<String> {
    vec![item("a", "default", "a"), item("b", "default", "b")]
}

/// Asserts that a delta relist with `attacks` is abandoned because of `cause`, with bounded memory and without visible
/// effects: both objects stay cached and are delivered once.
async fn assert_abandoned(what: &str, attacks: impl IntoIterator<Item = Attack>, cause: &str, protobuf: bool) {
    assert_abandoned_with(settings(), what, attacks, cause, protobuf).await;
}

async fn assert_abandoned_with(
    settings: ReflectorSettings,
    what: &str,
    attacks: impl IntoIterator<Item = Attack>,
    cause: &str,
    protobuf: bool,
) {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let connection = server.connection(Settings::default());
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    server.attack(attacks.into_iter().chain([watch(EXPIRED)]));
    let factory = InformerFactory::with_settings(&connection, settings);
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).protobuf(protobuf);
    let victim = builder.streamed_lists(false).object_limit(OBJECT_LIMIT_BYTES).start().expect("the informer starts");
    let diagnostics = DiagnosticLog::of(&victim);
    let fetched = Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let _handler = victim.on_event(move |event: Event<ConfigMap>| {
        assert!(matches!(event, Event::Added { .. }), "{event:?}");
        count.fetch_add(1, Ordering::Relaxed);
    });

    let relisted = async {
        diagnostics.wait_for(cause).await;
        diagnostics.wait_for("listed again").await;
    };
    let is_reported = tokio::time::timeout(REPORT_TIMEOUT, relisted).await;
    assert!(is_reported.is_ok(), "{what}: {cause:?} is not reported:\n{}\n{}", diagnostics.text(), victim.freshness());
    let memory_bytes = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(memory_bytes < MAX_ATTACK_MEMORY, "{what}: the attack cost {memory_bytes} bytes");
    let text = diagnostics.text();
    assert!(!text.contains("by metadata"), "{what}: {text}");
    assert!(!text.contains("no protobuf"), "{what}: metadata must not affect the encoding of objects: {text}");
    assert!(
        text.len() < 16_384 && !text.contains('\u{1b}'),
        "{what}: diagnostics must be short and without control characters"
    );
    server.attack(None);
    assert_recovers(what, &victim, &diagnostics).await;
    assert_eq!(fetched.load(Ordering::Relaxed), 2, "{what}");
}

#[tokio::test(start_paused = true)]
async fn invalid_metadata_list_is_not_compared() {
    let of_kind = |kind: &str| Attack { required_text: METADATA_REQUEST, ..list(&metadata_of(kind, "12", "")) };
    let whole = "full objects although metadata was requested";
    assert_abandoned("full objects", [of_kind("ConfigMapList")], whole, false).await;
    assert_abandoned("another list", [of_kind("NodeList")], "\"NodeList\"", false).await;
    let nothing =
        Attack { required_text: METADATA_REQUEST, ..list(r#"{"kind":"PartialObjectMetadataList","metadata":{}}"#) };
    assert_abandoned("no items", [nothing], "the response is not a list", false).await;
    let malformed =
        Attack { required_text: METADATA_REQUEST, ..list(r#"{"kind":"PartialObjectMetadataList","items":[}"#) };
    assert_abandoned("malformed", [malformed], "malformed JSON", false).await;
    for code in ["406 Not Acceptable", "415 Unsupported Media Type", "400 Bad Request", "404 Not Found"] {
        let refused = Attack { required_text: METADATA_REQUEST, ..response(code, "") };
        assert_abandoned(code, [refused], &code[..3], false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn incomparable_metadata_is_abandoned() {
    let older = metadata_of("PartialObjectMetadataList", "3", &cached_items().join(","));
    let version = "have no common version";
    let attack = Attack { required_text: METADATA_REQUEST, ..list(&older) };
    assert_abandoned("an older list", [attack], "older than the cache", false).await;
    let opaque = metadata_of("PartialObjectMetadataList", "x", "");
    assert_abandoned(
        "an opaque version",
        [Attack { required_text: METADATA_REQUEST, ..list(&opaque) }],
        version,
        false,
    )
    .await;
    let without = |part: &str| metadata(&[item("a", "default", "a").replace(part, "")]);
    let incomplete = "default/a has no UID or no comparable version in the metadata";
    assert_abandoned("no UID", [without(r#","uid":"a""#)], incomplete, false).await;
    assert_abandoned("no version", [without(r#","resourceVersion":"5""#)], incomplete, false).await;
    assert_abandoned("no name", [without(r#""name":"a","#)], "metadata.name", false).await;
    let elsewhere = metadata(&[item("a", "kube-system", "a")]);
    assert_abandoned("another namespace", [elsewhere], "kube-system/a is not in the namespace default", false).await;
    let terms = metadata(&[changed("a,metadata.namespace=b", "c")]);
    assert_abandoned("a name that is a selector", [terms], "cannot be used in a field selector", false).await;
}

#[tokio::test(start_paused = true)]
async fn empty_metadata_list_deletes_no_object() {
    // The server responds to each metadata request with only the collection's version.
    let missing = "cached objects are missing from the metadata";
    for protobuf in [false, true] {
        assert_abandoned_with(one_may_differ_in(2), "no objects", [metadata(&[])], missing, protobuf).await;
    }
}

#[tokio::test(start_paused = true)]
async fn endless_metadata_list_is_abandoned() {
    let same = r#"{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"12","continue":"x"},"items":[]}"#;
    assert_abandoned(
        "the same token",
        [Attack { required_text: METADATA_REQUEST, ..list(same) }],
        "the list does not end",
        false,
    )
    .await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000000\r\n\r\n";
    let begin =
        format!(r#"{head}{{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"12"}},"items":["#);
    let others = Attack { required_text: METADATA_REQUEST, ..endless(&begin, &format!("{},", changed("c", "c"))) };
    assert_abandoned("objects for ever", [others], "more than 2 objects differ", false).await;
    let spaces = Attack { required_text: METADATA_REQUEST, ..endless(&begin, &" ".repeat(100)) };
    assert_abandoned("spaces for ever", [spaces], "the list made no progress for 30 s", false).await;
}

#[tokio::test(start_paused = true)]
async fn corrupt_protobuf_metadata_keep_protobuf_enabled() {
    let of = |items: &[u8]| {
        let message = [field(1, &field(2, b"12")), items.to_vec()].concat();
        Attack {
            required_text: METADATA_REQUEST,
            ..messages::list(&enveloped_as("meta.k8s.io/v1", "PartialObjectMetadataList", &message))
        }
    };
    assert_abandoned("an item longer than its list", [of(&[0x12, 0xff, 0x7f, 0])], "malformed protobuf", true).await;
    let huge = of(&[[0x12].as_slice(), &[0xff; 9], &[1]].concat());
    assert_abandoned("an item of 2^64 bytes", [huge], "malformed protobuf", true).await;
    let anonymous = [field(1, b"a"), field(3, b"default"), field(6, b"5")].concat();
    let without = of(&field(2, &field(1, &anonymous)));
    assert_abandoned("no UID", [without], "default/a has no UID or no comparable version in the metadata", true).await;
    let refused = Attack { required_text: METADATA_REQUEST, ..response("406 Not Acceptable", "") };
    assert_abandoned("406", [refused], "406", true).await;
}

#[tokio::test(start_paused = true)]
async fn fetched_object_must_match_listed_metadata() {
    let listed = || metadata(&[changed("a", "a"), item("b", "default", "b")]);
    let other = "default/a was returned in another state than requested";
    assert_abandoned("another UID", [listed(), state(&[changed("a", "c")])], other, false).await;
    assert_abandoned("another version", [listed(), state(&[item("a", "default", "a")])], other, false).await;
    assert_abandoned("another object", [listed(), state(&[changed("c", "c")])], other, false).await;
    assert_abandoned("twice", [listed(), state(&[changed("a", "a"), changed("a", "a")])], other, false).await;
    let missing_state = "default/a was listed, but could not be read at the listed version";
    assert_abandoned("nothing", [listed(), state(&[])], missing_state, false).await;
    let node =
        Attack { required_text: EXACT_VERSION_REQUEST, ..list(r#"{"kind":"NodeList","metadata":{},"items":[]}"#) };
    assert_abandoned("another list", [listed(), node], "\"NodeList\"", false).await;
    let expired = Attack { required_text: EXACT_VERSION_REQUEST, ..response("410 Gone", "") };
    assert_abandoned("410", [listed(), expired], "410", false).await;
}

#[tokio::test(start_paused = true)]
async fn missing_metadata_support_is_remembered() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    server.attack([watch(EXPIRED), Attack { required_text: METADATA_REQUEST, ..response("406 Not Acceptable", "") }]);
    let connection = server.connection(Settings::default());
    let mut held = Vec::new();
    for scope in [Scope::all(), Scope::namespace("default"), Scope::all().labels("app=web")] {
        let factory = InformerFactory::with_settings(&connection, settings());
        let informer = factory.builder::<ConfigMap>(scope).protobuf(false).start().expect("the informer starts");
        let diagnostics = DiagnosticLog::of(&informer);
        let relisted = tokio::time::timeout(REPORT_TIMEOUT, diagnostics.wait_for("listed again at 10")).await;
        assert!(relisted.is_ok(), "{}", diagnostics.text());
        held.push(informer);
    }
    let metadata = server.requests().iter().filter(|head| head.contains(METADATA_REQUEST)).count();
    assert_eq!(metadata, 1, "only the first informer may request metadata");
}

#[tokio::test(start_paused = true)]
async fn custom_resources_use_protobuf_for_metadata_only() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    // A group with unknown message types; its path is used by the attacks.
    let group = GroupVersionKind::gvk("steadfast.test", "v1", "ConfigMap");
    let kind = ApiResource::from_gvk_with_plural(&group, "configmaps");
    let (either, json) = ("accept: application/vnd.kubernetes.protobuf;as=", "accept: application/json;as=");
    for (protobuf, accepted) in [(true, either), (false, json)] {
        let server = Server::default();
        server.attack([watch(EXPIRED), metadata(&cached_items())]);
        let factory = InformerFactory::with_settings(&server.connection(Settings::default()), settings());
        let builder = factory.builder_with::<DynamicObject>(&kind, Scope::namespace("default"));
        let informer = builder.protobuf(protobuf).start().expect("the informer starts");
        let diagnostics = DiagnosticLog::of(&informer);
        let relisted = diagnostics.wait_for("listed again at 12 by metadata, objects read in full: 0");
        let relisted = tokio::time::timeout(REPORT_TIMEOUT, relisted).await;
        assert!(relisted.is_ok(), "{}\n{}", diagnostics.text(), informer.freshness());
        let requests = server.requests();
        let metadata = requests.iter().find(|head| head.contains(METADATA_REQUEST)).expect("a request for metadata");
        assert!(metadata.contains(accepted), "{metadata}");
        let page = requests.iter().find(|head| head.contains("?limit=500 ")).expect("a list");
        assert!(page.contains("accept: application/json\r\n"), "{page}");
    }
}
