//! Requests of a webhook sink: bodies, secrets, redirects, rejected credentials.

use std::sync::Arc;
use std::time::Duration;

use steadfast_notify::Plan;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::sink::MessageSink;

use crate::receiver::Receiver;
use crate::webhook::{folder, message, open_sink};

async fn deliver(stream: &Arc<dyn MessageSink>) -> DeliveryOutcome {
    stream.deliver(&[message("a")]).await
}

fn rejection_reason(outcome: DeliveryOutcome) -> String {
    match outcome {
        DeliveryOutcome::Rejected { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn retry_reason(outcome: DeliveryOutcome) -> String {
    match outcome {
        DeliveryOutcome::Retry { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// Waits until secrets are read again.
async fn wait_until_secrets_expire() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test]
async fn request_uses_body_method_and_content_type() {
    let receiver = Receiver::with_status(200).await;
    let more =
        "method = \"PUT\"\nbody = \"{'text': message.name + ' is ' + message.data.ip, 'at': message.unix_seconds}\"";
    let stream = open_sink(&folder("body"), &receiver.url("/x"), more).await.expect("a valid configuration");
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    let more = "body = \"message.type + ' ' + secrets.key\"\nsecrets = {key = {file = \"key\"}}\ncontent_type = \"text/x-log\"";
    let stream = open_sink(&folder("text"), &receiver.url("/x"), more).await.expect("a valid configuration");
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    let more = "mode = \"batched\"\nbody = \"messages.map(m, m.name)\"";
    let stream = open_sink(&folder("batch"), &receiver.url("/x"), more).await.expect("a valid configuration");
    assert_eq!(stream.deliver(&[message("a"), message("b")]).await, DeliveryOutcome::Delivered);

    let arrived = receiver.take();
    assert_eq!((arrived[0].method.as_str(), arrived[0].header("content-type")), ("PUT", "application/json"));
    assert_eq!(arrived[0].json(), serde_json::json!({"text": "a is 10.0.0.1", "at": 1_767_323_045}));
    assert_eq!((arrived[1].method.as_str(), arrived[1].header("content-type")), ("POST", "text/x-log"));
    assert_eq!(arrived[1].body, "Added a key that is shared");
    assert_eq!(arrived[2].json(), serde_json::json!(["a", "b"]));
}

#[tokio::test]
async fn failing_body_is_rejected_immediately() {
    let receiver = Receiver::with_status(200).await;
    for (body, description) in [("message.data.missing.field", "`body` failed"), ("null", "returned null")] {
        let more = format!("body = \"{body}\"");
        let stream = open_sink(&folder("fails"), &receiver.url("/"), &more).await.expect("a valid configuration");
        let reason = rejection_reason(deliver(&stream).await);
        assert!(reason.contains(description), "{reason}");
    }
    assert_eq!(receiver.take().len(), 0);
}

#[tokio::test]
async fn request_errors_have_positions() {
    let folder = folder("mistakes");
    for (more, description) in [
        ("body = \"object.metadata.name\"", "unknown variable `object`; available: message, secrets"),
        ("body = \"messages\"", "unknown variable `messages`"),
        ("body = \"changed('spec')\"", "a body depends on messages"),
        ("body = \"{\"", "body: "),
        ("content_type = \"text/plain\"", "CloudEvents have a fixed content type"),
        ("method = \"GET\"", "unknown variant `GET`"),
        ("secrets = {\"a-b\" = {file = \"key\"}}", "is not a valid name of a secret"),
        ("secrets = {a = \"hunter2\"}", "expected a reference to a secret"),
        ("secrets = {a = {file = \"none\"}}", "the file none"),
        ("headers = {Authorization = \"Key {a}\"}", "the configuration contains a secret"),
    ] {
        let reported = open_sink(&folder, "http://127.0.0.1:1/", more).await.map(drop).expect_err(more);
        assert!(reported.contains(description) && reported.contains("x.toml:"), "{more}: {reported}");
        assert!(!reported.contains("hunter2"), "{reported}");
    }
    let reported = open_sink(&folder, "http://127.0.0.1:1/{token}", "").await.map(drop).expect_err("no such secret");
    assert!(reported.contains("unknown secret \"token\" in `{token}`"), "{reported}");
    let invalid_config =
        "[sinks.s]\nwebhook = {url = {fil = \"x\"}}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"s\"]\n";
    let reported = Plan::read("x.toml", invalid_config).map(drop).expect_err("no such place").to_string();
    assert!(
        reported.starts_with("x.toml:2:") && reported.contains("sinks.s.webhook.url.fil: unknown variant `fil`"),
        "{reported}"
    );
}

#[tokio::test]
async fn url_and_headers_take_secrets() {
    let receiver = Receiver::with_status(200).await;
    let folder = folder("parts");
    std::fs::write(folder.join("url"), receiver.url("/whole?token=hunter2\n")).expect("enough space");
    std::fs::write(folder.join("part"), "T000/B000/hunter2\n").expect("enough space");
    let config_with_url_file =
        "[sinks.s.webhook]\nurl = {file = \"url\"}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"s\"]\n";
    let plan = Plan::read(&folder.join("x.toml").display().to_string(), config_with_url_file)
        .unwrap_or_else(|reason| panic!("{reason}"));
    let stdout: Arc<dyn MessageSink> =
        Arc::new(steadfast_notify::sink::stdout::JsonLines::new(std::io::sink(), |_| {}));
    let stream = plan.open(&stdout).await.unwrap_or_else(|reason| panic!("{reason}"))["s"].clone();
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    let more = "secrets = {part = {file = \"part\"}}\nheaders = {Authorization = \"Key {part}\", X-Json = \"{}\"}";
    let stream = open_sink(&folder, &receiver.url("/services/{part}"), more).await.expect("a valid configuration");
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    let arrived = receiver.take();
    assert_eq!(arrived[0].path, "/whole?token=hunter2");
    assert_eq!(arrived[1].path, "/services/T000/B000/hunter2");
    assert_eq!((arrived[1].header("authorization"), arrived[1].header("x-json")), ("Key T000/B000/hunter2", "{}"));

    // An invalid URL is rejected without being shown.
    std::fs::write(folder.join("url"), "hunter2").expect("enough space");
    let reported = plan.open(&stdout).await.map(drop).expect_err("an invalid URL").to_string();
    assert!(reported.contains("is not the whole URL of a server") && !reported.contains("hunter2"), "{reported}");
}

const WITH_TOKEN: &str = "secret_headers = {Authorization = {file = \"token\"}}";

#[tokio::test]
async fn changed_secret_files_are_read_again() {
    let receiver = Receiver::with_status(200).await;
    let folder = folder("changed");
    let stream = open_sink(&folder, &receiver.url("/"), WITH_TOKEN).await.expect("a valid configuration");
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    std::fs::write(folder.join("token"), "Bearer new").expect("enough space");
    wait_until_secrets_expire().await;
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    // A file may be missing during its replacement. The last value applies.
    std::fs::remove_file(folder.join("token")).expect("an existing file");
    wait_until_secrets_expire().await;
    assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
    let tokens: Vec<String> =
        receiver.take().iter().map(|arrived| arrived.header("authorization").to_owned()).collect();
    assert_eq!(tokens, ["Bearer hunter2", "Bearer new", "Bearer new"]);
}

#[tokio::test]
async fn rejected_credentials_are_reloaded_before_failing() {
    for status in [401, 403] {
        let receiver = Receiver::start(move |arrived, _| {
            let accepted = arrived.header("authorization") == "Bearer new";
            (if accepted { 200 } else { status }, None, "no: hunter2".to_owned())
        })
        .await;
        let folder = folder(&format!("rejected-{status}"));
        let stream = open_sink(&folder, &receiver.url("/"), WITH_TOKEN).await.expect("a valid configuration");
        let reason = retry_reason(deliver(&stream).await);
        assert!(reason.contains(&status.to_string()) && reason.ends_with("the secrets are unchanged"), "{reason}");
        assert!(!reason.contains("hunter2"), "{reason}");
        // The failing attempt itself re-reads a file that has just changed.
        std::fs::write(folder.join("token"), "Bearer new").expect("enough space");
        assert_eq!(deliver(&stream).await, DeliveryOutcome::Delivered);
        assert_eq!(receiver.take().len(), 3);
    }
}

#[tokio::test]
async fn redirects_keep_body_but_not_secrets() {
    let other_receiver = Receiver::with_status(200).await;
    let other_url = other_receiver.url("/elsewhere");
    for status in [307, 308] {
        let other_url = other_url.clone();
        let receiver = Receiver::start(move |arrived, _| match arrived.path.as_str() {
            "/first" => (status, Some(("location", "second?x=1".to_owned())), String::new()),
            "/second?x=1" => (200, None, String::new()),
            "/loop" => (status, Some(("location", "/loop".to_owned())), String::new()),
            "/bad" => (status, Some(("location", "ftp://h/".to_owned())), String::new()),
            "/none" => (status, None, String::new()),
            _ => (status, Some(("location", other_url.clone())), String::new()),
        })
        .await;
        let folder = folder(&format!("redirect-{status}"));
        let sink_for_path = async |path: &str| {
            open_sink(&folder, &receiver.url(path), WITH_TOKEN).await.expect("a valid configuration")
        };
        assert_eq!(deliver(&sink_for_path("/first").await).await, DeliveryOutcome::Delivered);
        let arrived = receiver.take();
        assert_eq!((arrived.len(), arrived[1].method.as_str()), (2, "POST"));
        assert_eq!((&arrived[0].body, "Bearer hunter2"), (&arrived[1].body, arrived[1].header("authorization")));

        assert_eq!(deliver(&sink_for_path("/away").await).await, DeliveryOutcome::Delivered);
        let (sent, arrived) = (receiver.take(), other_receiver.take());
        assert_eq!((&arrived[0].body, arrived[0].path.as_str()), (&sent[0].body, "/elsewhere"));
        assert_eq!((sent[0].header("authorization"), arrived[0].header("authorization")), ("Bearer hunter2", ""));

        let reason = rejection_reason(deliver(&sink_for_path("/loop").await).await);
        assert!(reason.contains("more than 5 times"), "{reason}");
        assert_eq!(receiver.take().len(), 6);
        for path in ["/bad", "/none"] {
            let reason = rejection_reason(deliver(&sink_for_path(path).await).await);
            assert!(reason.contains("`Location`"), "{reason}");
        }
        let more = "body = \"secrets.key\"\nsecrets = {key = {file = \"key\"}}";
        let stream = open_sink(&folder, &receiver.url("/away"), more).await.expect("a valid configuration");
        let reason = rejection_reason(deliver(&stream).await);
        assert!(reason.contains("the body may contain secrets"), "{reason}");
        assert_eq!(other_receiver.take().len(), 0);
    }
}

#[tokio::test]
async fn unsupported_redirects_are_rejected() {
    for status in [301, 302, 303] {
        let receiver = Receiver::start(move |_, _| (status, Some(("location", "/x".to_owned())), String::new())).await;
        let stream = open_sink(&folder("moved"), &receiver.url("/"), "").await.expect("a valid configuration");
        let reason = rejection_reason(deliver(&stream).await);
        assert!(reason.contains("set `url` to the new address"), "{reason}");
        assert_eq!(receiver.take().len(), 1);
    }
}

#[tokio::test]
async fn response_body_appears_in_the_reason() {
    let receiver = Receiver::start(|_, _| (400, None, "invalid_payload\u{1b}[2J".to_owned())).await;
    let stream = open_sink(&folder("reason"), &receiver.url("/"), "").await.expect("a valid configuration");
    assert_eq!(rejection_reason(deliver(&stream).await), "the server returned 400 Bad Request: invalid_payload [2J");
}
