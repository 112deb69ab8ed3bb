use super::*;

fn backend(address: &str, weight: u16) -> Backend {
    Backend { address: address.parse().expect("an address"), weight }
}

fn web_target() -> Nftables {
    Nftables::new("web-1", "10.99.0.1:80".parse().expect("an address")).expect("a name")
}

fn entries(all: &[(&str, &str, u16)]) -> BTreeMap<String, Backend> {
    all.iter().map(|(name, address, weight)| ((*name).to_owned(), backend(address, *weight))).collect()
}

#[test]
fn table_is_written_with_reduced_weights() {
    let own = entries(&[("a", "10.0.0.1:8001", 100), ("b", "10.0.0.2:8002", 50), ("c", "10.0.0.3:8003", 0)]);
    let text = web_target().table.ruleset(&own);
    assert!(
        text.starts_with("table ip steadfast_web_1\ndelete table ip steadfast_web_1\ntable ip steadfast_web_1 {\n"),
        "{text}"
    );
    let choice =
        "ip daddr 10.99.0.1 tcp dport 80 dnat to numgen inc mod 3 map { 0-1 : 10.0.0.1 . 8001, 2 : 10.0.0.2 . 8002, }";
    assert!(text.contains(choice), "{text}");
    assert!(text.contains("counter comment \"c 10.0.0.3:8003 0\""), "{text}");
    assert!(!web_target().table.ruleset(&entries(&[("c", "10.0.0.3:8003", 0)])).contains("dnat"));
}

#[test]
fn invalid_backend_does_not_block_others() {
    let add = |name: &str, address, weight| Step::Add { name: name.to_owned(), value: backend(address, weight) };
    let steps = [
        add("six", "[fd00::1]:80", 1),
        add("heavy", "10.0.0.1:80", 257),
        add("a\"b", "10.0.0.1:80", 1),
        add("good", "10.0.0.9:80", 1),
    ];
    let (after, result) = web_target().apply_steps(BTreeMap::new(), &steps);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(
        result.expect_err("the first").to_string(),
        "six has the address [fd00::1]:80, which is not of the address family of 10.99.0.1:80"
    );
    assert_eq!(
        web_target().check_entry("heavy", &backend("10.0.0.1:80", 257)).expect_err("too much").to_string(),
        "heavy cannot have the weight 257: from 0 to 256"
    );
    assert!(matches!(Nftables::new("a;b", web_target().table.front_address), Err(NftablesError::Name(_))));
}

/// Returns the entries of a listed table with one entry and these turns of the backend 10.0.0.1:80.
fn parse_table(comment: &str, turns: &serde_json::Value) -> BTreeMap<String, Backend> {
    use serde_json::json;
    let hook = |chain: &str| json!({"rule": {"chain": chain, "expr": [{"jump": {"target": "balance"}}]}});
    let condition = |protocol: &str, field: &str, right: serde_json::Value| {
        let payload = json!({"protocol": protocol, "field": field});
        json!({"match": {"left": {"payload": payload}, "right": right}})
    };
    let set = json!([[turns, {"concat": ["10.0.0.1", 80]}]]);
    let map = json!({"map": {"key": {"numgen": {"mode": "inc"}}, "data": {"set": set}}});
    let balance = json!([
        condition("ip", "daddr", "10.99.0.1".into()),
        condition("tcp", "dport", 80.into()),
        {"dnat": {"addr": map}},
    ]);
    let listed = json!({"nftables": [
        hook("from_elsewhere"),
        hook("from_here"),
        {"rule": {"chain": "balance", "expr": balance}},
        {"rule": {"chain": "entries", "comment": comment}},
    ]});
    listing::parse_entries(&listed.to_string(), &web_target().table).expect("a table")
}

#[test]
fn foreign_table_content_is_bounded() {
    use serde_json::json;
    let one_turn = json!(0);
    assert_eq!(parse_table("a 10.0.0.1:80 1", &one_turn), entries(&[("a", "10.0.0.1:80", 1)]));
    assert_eq!(parse_table("?0 10.0.0.1:80 1", &one_turn), entries(&[("?0", "10.0.0.1:80", 1)]));
    // The backend keeps its traffic until the guard permits its removal.
    let unknown = entries(&[("?0", "10.0.0.1:80", 1 + DRIFT_WEIGHT_OFFSET)]);
    for comment in
        ["a 10.0.0.1:80 65535", "a 10.0.0.1:80 257", "a\"} 10.0.0.1:80 1", "a\n 10.0.0.1:80 1", "? 10.0.0.1:80 1"]
    {
        assert_eq!(parse_table(comment, &json!({"range": [0, 1]})), unknown, "{comment:?}");
    }
    for range in [json!([0, u64::MAX]), json!([1, 0]), json!([0, u64::from(u32::MAX)])] {
        let found = parse_table("a 10.0.0.1:80 1", &json!({ "range": range }));
        assert_eq!(found, entries(&[("a", "10.0.0.1:80", 0)]), "{range}");
    }
}

#[test]
fn second_foreign_backend_keeps_first() {
    let found = parse_table("?0 10.0.0.9:80 1", &serde_json::json!(0));
    assert_eq!(found, entries(&[("?0", "10.0.0.9:80", 0), ("?1", "10.0.0.1:80", 1 + DRIFT_WEIGHT_OFFSET)]));
}

#[test]
fn udp_table_matches_udp_ports() {
    let text = web_target().protocol(TransportProtocol::Udp).table.ruleset(&entries(&[("a", "10.0.0.1:53", 1)]));
    assert!(text.contains("ip daddr 10.99.0.1 udp dport 80 dnat to "), "{text}");
    assert!(!text.contains("tcp"), "{text}");
}

#[test]
fn validate_removes_invalid_entries() {
    let mut desired = entries(&[
        ("good", "10.0.0.1:80", 256),
        ("a b", "10.0.0.1:80", 1),
        ("heavy", "10.0.0.1:80", 257),
        ("nowhere", "0.0.0.0:80", 1),
        ("portless", "10.0.0.1:0", 1),
        ("six", "[fd00::1]:80", 1),
    ]);
    let reasons = web_target().validate(&mut desired);
    assert_eq!(desired.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(reasons.keys().collect::<Vec<_>>(), ["a b", "heavy", "nowhere", "portless", "six"]);
    let fitting = entry_name(&"c1/shop/".repeat(20));
    assert_eq!((fitting.len(), check_name(&fitting).is_ok()), (64, true));
    let longest = format!("{fitting} [ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535 256");
    assert!(longest.len() <= 128, "the text fits into a comment");
}

/// Tool that lists an empty ruleset, and accepts each table without the word `bad`.
fn target_rejecting_bad_names(folder: &std::path::Path) -> Nftables {
    let script = format!(
        "if [ \"$1\" = -j ]; then echo '{{\"nftables\": []}}'; exit; fi; cat > {0}/new; \
         if grep -q bad {0}/new; then echo 'Error: no such thing' >&2; exit 1; fi; mv {0}/new {0}/table",
        folder.display()
    );
    web_target().with_command(["sh", "-c", &script, "nft"])
}

#[tokio::test]
async fn rejected_entry_does_not_block_others() {
    let folder = std::env::temp_dir().join(format!("steadfast-nftables-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let steps: Vec<_> = ["a", "bad-1", "c", "d", "bad-2", "f", "g"]
        .map(|name| Step::Add { name: name.to_owned(), value: backend("10.0.0.1:80", 1) })
        .into();
    let error = target_rejecting_bad_names(&folder).apply(&steps).await.expect_err("two are bad");
    assert!(error.to_string().contains("no such thing"), "{error}");
    let table = std::fs::read_to_string(folder.join("table")).expect("a table");
    std::fs::remove_dir_all(&folder).expect("the folder");
    let names: Vec<_> = table.lines().filter_map(|line| line.split('"').nth(1)?.split(' ').next()).collect();
    assert_eq!(names, ["a", "c", "d", "f", "g"]);
}

#[tokio::test]
async fn tool_error_includes_remedy() {
    let error = web_target().with_command(["/nowhere/nft"]).read().await.expect_err("no such tool");
    assert!(error.to_string().contains("the package nftables"), "{error}");
    let failing = ["sh", "-c", "echo 'Operation not permitted (you must be root)' >&2; exit 1"];
    let error = web_target().with_command(failing).read().await.expect_err("refused");
    assert!(error.to_string().ends_with("; the program needs CAP_NET_ADMIN in the network namespace"), "{error}");
    let error = web_target().with_command(["echo", "nonsense"]).read().await.expect_err("no JSON");
    assert!(error.to_string().contains("has an unknown form: it is not JSON"), "{error}");
}
