//! Endless bodies and watches.

use crate::server::{Attack, endless, item, list, response, watch};
use crate::{OBJECT_LIMIT_BYTES, assert_survives};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Returns a chunked body with one start and endless repetitions of `piece`.
fn body(begin: &str, piece: &str) -> Attack {
    endless(&format!("{CHUNKED}{}", chunk(begin)), &chunk(piece))
}

#[tokio::test(start_paused = true)]
async fn endless_record_is_abandoned_at_limit() {
    let more = "a".repeat(16_384);
    // The messages about unfinished and finished records differ, but all contain the limit.
    let too_long = format!("{OBJECT_LIMIT_BYTES} bytes");
    assert_survives("an item", body(r#"{"items":[{"data":""#, &more), &too_long).await;
    assert_survives("metadata", body(r#"{"metadata":{"x":""#, &more), &too_long).await;
    assert_survives("a member's name", body("{\"", &more), &too_long).await;
    assert_survives("a member unknown", body(r#"{"x":[0"#, &",0".repeat(8000)), &too_long).await;
    assert_survives("a line of a watch", Attack { is_watch: true, ..body("{", &more) }, &too_long).await;
    assert_survives("a chunk's extension", endless(&format!("{CHUNKED}5;"), &more), "the connection to").await;
    assert_survives("a chunk's length", endless(CHUNKED, &"0".repeat(16_384)), "the list made no progress for 30 s")
        .await;
    assert_survives("trailers", endless(&format!("{CHUNKED}0\r\n"), &format!("x: {more}\r\n")), "the connection to")
        .await;
}

#[tokio::test(start_paused = true)]
async fn endless_white_space_counts_as_stall() {
    assert_survives("in a list", body("{", &" ".repeat(1000)), "the list made no progress for 30 s").await;
}

#[tokio::test(start_paused = true)]
async fn nesting_is_bounded() {
    assert_survives("in an item", list(&format!(r#"{{"items":[{}"#, "[".repeat(100_000))), "ended early").await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    assert_survives("in metadata", list(&format!(r#"{{"metadata":{deep}}}"#)), "malformed JSON").await;
}

#[tokio::test(start_paused = true)]
async fn malformed_watch_records_are_named() {
    assert_survives("no object", watch("{\"type\":\"ADDED\"}\n"), "a watch record without an object").await;
    assert_survives("no type", watch("{\"object\":{}}\n"), "unknown type of watch record").await;
    assert_survives("an array", watch("[]\n"), "a watch record without an object").await;
    assert_survives(
        "an error without a status",
        watch("{\"type\":\"ERROR\",\"object\":5}\n"),
        "ERROR without a readable Status",
    )
    .await;
    let deep = format!("{{\"type\":\"ADDED\",\"object\":{}\n", "[".repeat(100_000));
    assert_survives("deep", watch(&deep), "malformed JSON").await;
    let stray = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", item("x", "kube-system", "x"));
    assert_survives("another namespace", watch(&stray), "kube-system/x is not in the namespace default").await;
    assert_survives("a page of HTML", watch("<html>\n</html>\n"), "malformed JSON").await;
}

#[tokio::test(start_paused = true)]
async fn server_message_is_shortened_to_one_line() {
    let message = format!("{}{}", r"\u001b[31m\n", "x".repeat(60_000));
    let status = format!(r#"{{"kind":"Status","code":500,"reason":"Internal","message":"{message}"}}"#);
    assert_survives(
        "an error",
        response("500 No\r\ncontent-type: application/json", &status),
        r"500 Internal: \u{1b}[31m\n",
    )
    .await;
    assert_survives(
        "an error of a watch",
        watch(&format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")),
        "500 Internal",
    )
    .await;
}
