//! Malformed response heads.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::transport::Settings;
use steadfast::{InformerFactory, Scope};

use crate::server::{Attack, Server, endless, list, response};
use crate::{ALLOCATOR, MAX_ATTACK_MEMORY, MEMORY_TEST_LOCK, assert_survives};

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

#[tokio::test(start_paused = true)]
async fn endless_headers_end_with_the_connection() {
    let field = format!("x: {}\r\n", "a".repeat(1000));
    assert_survives("one field after the other", endless(GOOD, &field), "violated HTTP/1.1: message head is too large")
        .await;
    assert_survives(
        "a field without an end",
        endless("HTTP/1.1 200 OK\r\nx: ", &"a".repeat(16_384)),
        "violated HTTP/1.1: message head is too large",
    )
    .await;
    assert_survives(
        "a status line without an end",
        endless("HTTP/1.1 200 ", &"a".repeat(16_384)),
        "violated HTTP/1.1: message head is too large",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn endless_continuations_end_with_the_connection() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let settings = Settings { prior_knowledge: true, ..Settings::default() };
    let connection = Server::default().connection(settings);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let factory = InformerFactory::new(&connection);
    let victim = factory.informer::<ConfigMap>(Scope::all()).expect("the informer starts");
    let error = victim.wait_for_sync(Duration::from_secs(60)).await.expect_err("the list fails");
    let memory_bytes = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(memory_bytes < MAX_ATTACK_MEMORY, "{memory_bytes} bytes");
    assert!(error.to_string().contains("the connection to hostile"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn endless_head_times_out() {
    let slow = Attack { pause: Duration::from_secs(1), ..endless(GOOD, "x") };
    assert_survives("a byte a second", slow, "the list made no progress for 30 s").await;
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(40);
    assert_survives("interim responses without an end", endless("", &interim), "the list made no progress for 30 s")
        .await;
}

#[tokio::test(start_paused = true)]
async fn invalid_http_is_reported() {
    for (what, bytes) in [
        ("another protocol", "SSH-2.0-OpenSSH_9.6\r\n"),
        ("lengths that differ", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n"),
        ("a negative length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"),
    ] {
        let attack = Attack { bytes: bytes.into(), closes: true, ..Attack::default() };
        assert_survives(what, attack, "violated HTTP/1.1").await;
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_list_is_reported_by_its_head() {
    let html = "<html><form action=login>";
    assert_survives("a login page", response("200 OK\r\ncontent-type: text/html", html), "\"text/html\"").await;
    assert_survives("no content type", response("200 OK", "{}"), "unsupported content type \"\"").await;
    let protobuf = response("200 OK\r\ncontent-type: application/vnd.kubernetes.protobuf", "k8s\0");
    assert_survives("protobuf", protobuf, "application/vnd.kubernetes.protobuf").await;
    let other = response("200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br", "\u{1f}\u{8b}");
    assert_survives("another coding", other, "content encoding \"br\", which was not requested").await;
    let none = Attack { bytes: b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), ..Attack::default() };
    assert_survives("no content", none, "204").await;
    let upgrade = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_vec();
    assert_survives("another protocol unasked", Attack { bytes: upgrade, ..Attack::default() }, "101").await;
}

/// Returns a response that declares compression.
fn gzipped(body: &[u8]) -> Attack {
    let head = format!("{GOOD}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    Attack { bytes: [head.as_bytes(), body].concat(), ..Attack::default() }
}

/// Returns `text` followed by 64 MB of `bomb`. They are compressed in pieces, because other tests measure the memory of
/// the process.
fn packed(text: &str, bomb: Option<u8>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("a write to memory succeeds");
    if let Some(byte) = bomb {
        (0..1 << 16).for_each(|_| encoder.write_all(&[byte; 1 << 10]).expect("a write to memory succeeds"));
    }
    encoder.finish().expect("a write to memory succeeds")
}

#[tokio::test(start_paused = true)]
async fn compressed_response_costs_no_more_memory() {
    let head = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":["#;
    let spaces = packed(head, Some(b' '));
    assert_survives("a bomb of nothing", gzipped(&spaces), "ended early").await;
    let item = packed(&[head, r#"{"metadata":{"name":""#].concat(), Some(b'a'));
    assert_survives("a bomb of one name", gzipped(&item), "the limit is").await;
    assert_survives("no gzip", gzipped(&[b'{'; 100]), "malformed gzip").await;
    let mut cut = packed(&format!("{head}]}}"), None);
    cut.truncate(cut.len() - 4);
    assert_survives("one that is cut", gzipped(&cut), "within its gzip").await;
}

#[tokio::test(start_paused = true)]
async fn compressed_list_is_decoded() {
    let _alone = MEMORY_TEST_LOCK.lock().await;
    let server = Server::default();
    let item = r#"{"metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"9"},"data":{"k":"v"}}"#;
    let list = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"10"}},"items":[{item}]}}"#
    );
    server.attack(Some(gzipped(&packed(&list, None))));
    let factory = InformerFactory::new(&server.connection(Settings::default()));
    let builder = factory.builder::<ConfigMap>(Scope::namespace("default")).streamed_lists(false);
    let informer = builder.start().expect("the informer starts");
    informer.wait_for_sync(Duration::from_secs(60)).await.expect("the list is valid");
    let lister = informer.lister().expect("the informer has synced");
    let a = lister.get("default", "a").expect("the object decodes").expect("the object exists");
    assert_eq!(a.data.as_ref().and_then(|data| data.get("k")).map(String::as_str), Some("v"));
    let watch = async {
        while !server.requests().iter().any(|requests| requests.contains("watch=")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), watch).await.expect("a watch follows the list");
    for requests in server.requests() {
        assert_eq!(
            requests.contains("gzip"),
            !requests.contains("watch="),
            "only lists must request compression: {requests}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_are_named_and_not_followed() {
    for head in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let attack = response(&format!("{head}\r\nlocation: http://elsewhere/configmaps"), "");
        assert_survives(head, attack, "a redirect, which is not followed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_content_length_is_reported() {
    let head = format!("{GOOD}content-length: 9223372036854775807\r\n\r\n{{");
    let attack = Attack { bytes: head.clone().into(), closes: true, ..Attack::default() };
    assert_survives("a huge length and few bytes", attack, "end of file before message length reached").await;
    let attack = Attack { bytes: head.into(), ..Attack::default() };
    assert_survives("a huge length and silence", attack, "the list made no progress for 30 s").await;
    let mut short = list(r#"{"kind":"ConfigMapList","#);
    short.closes = true;
    assert_survives("a list cut off in peace", short, "ended early").await;
}
