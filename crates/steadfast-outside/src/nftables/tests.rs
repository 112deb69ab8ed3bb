use super::*;

fn backend(address: &str, weight: u16) -> Backend {
    Backend { address: address.parse().expect("an address"), weight }
}

fn web() -> Nftables {
    Nftables::new("web-1", "10.99.0.1:80".parse().expect("an address")).expect("a name")
}

fn entries(all: &[(&str, &str, u16)]) -> BTreeMap<String, Backend> {
    all.iter().map(|(name, address, weight)| ((*name).to_owned(), backend(address, *weight))).collect()
}

#[test]
fn a_table_is_written_as_a_whole_with_as_few_turns_as_the_weights_allow() {
    let own = entries(&[("a", "10.0.0.1:8001", 100), ("b", "10.0.0.2:8002", 50), ("c", "10.0.0.3:8003", 0)]);
    let text = web().table.written(&own);
    assert!(
        text.starts_with("table ip steadfast_web_1\ndelete table ip steadfast_web_1\ntable ip steadfast_web_1 {\n"),
        "{text}"
    );
    let choice =
        "ip daddr 10.99.0.1 tcp dport 80 dnat to numgen inc mod 3 map { 0-1 : 10.0.0.1 . 8001, 2 : 10.0.0.2 . 8002, }";
    assert!(text.contains(choice), "{text}");
    assert!(text.contains("counter comment \"c 10.0.0.3:8003 0\""), "{text}");
    assert!(!web().table.written(&entries(&[("c", "10.0.0.3:8003", 0)])).contains("dnat"));
}

#[test]
fn what_cannot_be_is_told_and_keeps_nothing_else_waiting() {
    let add = |name: &str, address, weight| Step::Add { name: name.to_owned(), value: backend(address, weight) };
    let steps = [
        add("six", "[fd00::1]:80", 1),
        add("heavy", "10.0.0.1:80", 257),
        add("a\"b", "10.0.0.1:80", 1),
        add("good", "10.0.0.9:80", 1),
    ];
    let (after, wrong) = web().after(BTreeMap::new(), &steps);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(
        wrong.expect_err("the first").to_string(),
        "six is at [fd00::1]:80, which is not of the family of 10.99.0.1:80"
    );
    assert_eq!(
        web().check("heavy", &backend("10.0.0.1:80", 257)).expect_err("too much").to_string(),
        "heavy cannot have the weight 257: from 0 to 256"
    );
    assert!(matches!(Nftables::new("a;b", web().table.before), Err(NftablesError::Name(_))));
}

#[tokio::test]
async fn a_tool_that_is_not_there_or_may_not_says_what_to_do() {
    let error = web().by(["/nowhere/nft"]).look().await.expect_err("no such tool");
    assert!(error.to_string().contains("the package nftables"), "{error}");
    let failing = ["sh", "-c", "echo 'Operation not permitted (you must be root)' >&2; exit 1"];
    let error = web().by(failing).look().await.expect_err("refused");
    assert!(error.to_string().ends_with("; it takes CAP_NET_ADMIN in the network namespace"), "{error}");
    let error = web().by(["echo", "nonsense"]).look().await.expect_err("no JSON");
    assert!(error.to_string().contains("in an unknown form: it is no JSON"), "{error}");
}
