use super::*;

fn etcd() -> Etcd {
    Etcd::new(&["http://127.0.0.1:2379", "http://[fd00::1]:2379/"], "/services/", "cluster-1").expect("plain ones")
}

#[test]
fn invalid_endpoint_is_rejected() {
    for endpoint in
        ["127.0.0.1:2379", "https://127.0.0.1:2379", "http://127.0.0.1", "http://h:1/v3", "http://a@h:1", ""]
    {
        let error = Etcd::new(&[endpoint], "/p/", "m").expect_err(endpoint);
        assert!(matches!(&error, EtcdError::Endpoint(named) if named == endpoint), "{error}");
    }
    assert!(matches!(Etcd::new(&[], "/p/", "m"), Err(EtcdError::Endpoint(_))));
    assert!(matches!(Etcd::new(&["http://h:1"], "", "m"), Err(EtcdError::EmptyPrefixOrMark)));
    assert!(matches!(Etcd::new(&["http://h:1"], "/p/", ""), Err(EtcdError::EmptyPrefixOrMark)));
}

#[test]
fn lease_id_is_stable_and_unique() {
    assert_eq!(lease_id("cluster-1", "/services/"), etcd().lease);
    assert_eq!(etcd().lease, 0x6f64_010b_0af7_bca9);
    let others = [("cluster-2", "/services/"), ("cluster-1", "/services"), ("cluster-1/", "services/")];
    assert!(others.iter().all(|(mark, prefix)| lease_id(mark, prefix) != etcd().lease));
}

#[test]
fn prefix_range_ends_at_next_prefix() {
    assert_eq!(prefix_end(b"/services/"), b"/services0");
    assert_eq!(prefix_end(b"a\xff\xff"), b"b");
    assert_eq!(prefix_end(b"\xff"), [0]);
}

#[test]
fn described_steps_are_shell_quoted() {
    let (name, it) = ("it's".to_owned(), EtcdValue("{\"a\": 1}".to_owned()));
    let steps = [Step::Add { name: name.clone(), value: it.clone() }, Step::Remove { name, value: it }];
    let found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
    let etcdctl = "etcdctl --endpoints=127.0.0.1:2379,[fd00::1]:2379";
    let expected = [
        format!("{etcdctl} put --lease={:x} -- '/services/it'\\''s' '{{\"a\": 1}}'", etcd().lease),
        format!("{etcdctl} del -- '/services/it'\\''s'"),
    ];
    assert_eq!(etcd().describe(&found, &steps), expected);
}

#[test]
fn malformed_key_list_is_an_error() {
    let parse = |text: &str| responses::parse_key_values(&serde_json::from_str(text).expect("JSON"));
    assert_eq!(parse(r#"{"header": {"revision": "7"}}"#), Ok(Vec::new()));
    assert!(parse("{}").is_err());
    assert!(parse(r#"{"header": {"revision": "7"}, "count": "2"}"#).is_err());
    assert!(parse(r#"{"kvs": [{"key": "a!"}]}"#).expect_err("no Base64").contains("\"a!\" is not Base64"));
    let key_value = KeyValue { key: b"a".to_vec(), value: b"b".to_vec(), lease: i64::MAX, revision: 7 };
    assert_eq!(
        parse(r#"{"kvs": [{"key": "YQ==", "value": "Yg==", "lease": "9223372036854775807", "mod_revision": "7"}]}"#),
        Ok(vec![key_value])
    );
}

/// Two endpoints that accept connections; each responds to the methods in `responses`, and never to any other.
/// Returns the methods that were requested.
async fn start_endpoints(
    responses: [&'static [(&'static str, &'static str)]; 2],
) -> (Vec<String>, Arc<Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let requested = Arc::new(Mutex::new(Vec::new()));
    let mut urls = Vec::new();
    for (number, responses) in responses.into_iter().enumerate() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        urls.push(format!("http://{}", listener.local_addr().expect("an address")));
        let requested = requested.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (requested, mut read) = (requested.clone(), vec![0; 65536]);
                tokio::spawn(async move {
                    let length = stream.read(&mut read).await.unwrap_or_default();
                    let text = String::from_utf8_lossy(&read[..length]).into_owned();
                    let method = text.split_whitespace().nth(1).unwrap_or_default().replace("/v3/", "");
                    requested.lock().push(format!("{number} {method}"));
                    match responses.iter().find(|(name, _)| *name == method) {
                        Some((_, body)) => {
                            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                            let _ = stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await;
                        }
                        None => std::future::pending().await,
                    }
                });
            }
        });
    }
    (urls, requested)
}

const KEEPALIVE_RESPONSE: (&str, &str) = ("lease/keepalive", r#"{"result": {"TTL": "300"}}"#);

const PAGE_RESPONSE: (&str, &str) = ("kv/range", r#"{"header": {"revision": "7"}}"#);

#[tokio::test]
async fn write_without_response_is_not_retried() {
    let (urls, requested) =
        start_endpoints([&[KEEPALIVE_RESPONSE], &[KEEPALIVE_RESPONSE, ("kv/txn", r#"{"succeeded": true}"#)]]).await;
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let target = Etcd::new(&urls, "/p/", "m").expect("a target");
    let steps = [Step::Add { name: "a".to_owned(), value: EtcdValue("1".to_owned()) }];
    let error = target.apply(&steps).await.expect_err("no response").to_string();
    assert!(error.contains("no response within 3s"), "{error}");
    assert_eq!(*requested.lock(), ["0 lease/keepalive", "0 kv/txn"]);
    // The next requests go to the other endpoint.
    target.apply(&steps).await.expect("a response");
    assert_eq!(requested.lock()[2..], ["1 lease/keepalive", "1 kv/txn"]);
}

#[tokio::test]
async fn unresponsive_endpoint_is_skipped_for_reads() {
    let (urls, requested) = start_endpoints([&[], &[KEEPALIVE_RESPONSE, PAGE_RESPONSE]]).await;
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    let target = Etcd::new(&urls, "/p/", "m").expect("a target");
    target.read().await.expect("the second endpoint responds");
    assert_eq!(*requested.lock(), ["0 lease/keepalive", "1 lease/keepalive", "1 kv/range"]);
}

/// The record of the term 6.
const TERM_RESPONSE: (&str, &str) =
    ("kv/range", r#"{"kvs": [{"key": "YQ==", "value": "Ng==", "lease": "7", "mod_revision": "7"}]}"#);

#[tokio::test]
async fn lease_of_later_term_is_not_renewed() {
    let (urls, requested) = start_endpoints([&[TERM_RESPONSE, KEEPALIVE_RESPONSE], &[]]).await;
    let target = Etcd::new(&[&*urls[0]], "/p/", "m").expect("a target");
    assert!(!target.record_term(5).await.expect("a response"), "the recorded term is later");
    assert_eq!(*requested.lock(), ["0 kv/range"]);
    assert!(target.record_term(6).await.expect("a response"));
    assert_eq!(requested.lock()[1..], ["0 kv/range", "0 lease/keepalive"]);
}

#[test]
fn owner_record_is_outside_prefix() {
    for prefix in ["/services/", "s", "steadfast-owner/", "_steadfast-owner/", "_"] {
        let target = Etcd::new(&["http://h:1"], prefix, "m").expect("a target");
        assert!(!target.owner_key().starts_with(prefix), "{prefix}: {}", target.owner_key());
    }
}

#[tokio::test]
async fn message_of_server_is_escaped_and_cut() {
    const RESPONSE: (&str, &str) = ("lease/keepalive", r#"{"error": "bad\u001b[2J\nline"}"#);
    let (urls, _) = start_endpoints([&[RESPONSE], &[]]).await;
    let target = Etcd::new(&[&*urls[0]], "/p/", "m").expect("a target");
    let error = target.renew().await.expect_err("a rejection");
    assert!(error.to_string().ends_with("rejects `/v3/lease/keepalive`: bad\\u{1b}[2J\\nline"), "{error}");
    let long = serde_json::json!({ "kvs": [{ "key": "!".repeat(1 << 20) }] });
    assert!(responses::parse_key_values(&long).expect_err("no Base64").len() < 1000);
}
