use super::*;

fn etcd() -> Etcd {
    Etcd::new(&["http://127.0.0.1:2379", "http://[fd00::1]:2379/"], "/services/", "cluster-1").expect("plain ones")
}

#[test]
fn what_is_no_endpoint_is_told() {
    for endpoint in
        ["127.0.0.1:2379", "https://127.0.0.1:2379", "http://127.0.0.1", "http://h:1/v3", "http://a@h:1", ""]
    {
        let error = Etcd::new(&[endpoint], "/p/", "m").expect_err(endpoint);
        assert!(matches!(&error, EtcdError::Endpoint(named) if named == endpoint), "{error}");
    }
    assert!(matches!(Etcd::new(&[], "/p/", "m"), Err(EtcdError::Endpoint(_))));
    assert!(matches!(Etcd::new(&["http://h:1"], "", "m"), Err(EtcdError::Empty)));
    assert!(matches!(Etcd::new(&["http://h:1"], "/p/", ""), Err(EtcdError::Empty)));
}

#[test]
fn a_lease_is_of_one_mark_and_one_prefix_and_the_same_in_every_release() {
    assert_eq!(lease_of("cluster-1", "/services/"), etcd().lease);
    assert_eq!(etcd().lease, 0x6f64_010b_0af7_bca9);
    let others = [("cluster-2", "/services/"), ("cluster-1", "/services"), ("cluster-1/", "services/")];
    assert!(others.iter().all(|(mark, prefix)| lease_of(mark, prefix) != etcd().lease));
}

#[test]
fn a_prefix_ends_where_the_next_begins() {
    assert_eq!(after(b"/services/"), b"/services0");
    assert_eq!(after(b"a\xff\xff"), b"b");
    assert_eq!(after(b"\xff"), [0]);
}

#[test]
fn a_step_is_described_in_words_that_a_shell_reads_as_they_are() {
    let (name, it) = ("it's".to_owned(), Text("{\"a\": 1}".to_owned()));
    let steps = [Step::Add { name: name.clone(), value: it.clone() }, Step::Remove { name, value: it }];
    let found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
    let etcdctl = "etcdctl --endpoints=127.0.0.1:2379,[fd00::1]:2379";
    let expected = [
        format!("{etcdctl} put --lease={:x} -- '/services/it'\\''s' '{{\"a\": 1}}'", etcd().lease),
        format!("{etcdctl} del -- '/services/it'\\''s'"),
    ];
    assert_eq!(etcd().describe(&found, &steps), expected);
}

#[test]
fn what_is_no_list_of_keys_is_no_empty_one() {
    let answer = |text: &str| answers::kvs(&serde_json::from_str(text).expect("JSON"));
    assert_eq!(answer(r#"{"header": {"revision": "7"}}"#), Ok(Vec::new()));
    assert!(answer("{}").is_err());
    assert!(answer(r#"{"header": {"revision": "7"}, "count": "2"}"#).is_err());
    assert!(answer(r#"{"kvs": [{"key": "a!"}]}"#).expect_err("no Base64").contains("\"a!\" is no Base64"));
    let kv = Kv { key: b"a".to_vec(), value: b"b".to_vec(), lease: i64::MAX };
    assert_eq!(answer(r#"{"kvs": [{"key": "YQ==", "value": "Yg==", "lease": "9223372036854775807"}]}"#), Ok(vec![kv]));
}
