use std::collections::BTreeMap;

use domain::base::iana::{Class, Rtype};
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::tsig::Time48;
use domain::tsig::{Key as Tsig, ServerTransaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::{DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings};

const SECRET: &str = "c3RlYWRmYXN0IHN0ZWFkZmFzdCBzdGVhZGZhc3QhISE=";

fn key() -> TsigKey {
    TsigKey::new("hmac-sha256", "mirror", SECRET).expect("a key")
}

fn record(name: &str, ttl: u32, kind: &str, text: &str) -> DnsRecord {
    DnsRecord { name: name.to_owned(), ttl, data: RecordData::read(kind, text).expect("data") }
}

fn dns_entries(records: &[DnsRecord]) -> Result<BTreeMap<String, DnsRecord>, String> {
    entries("example.org", records.iter().cloned()).map_err(|error| error.to_string())
}

#[test]
fn equivalent_records_share_one_entry() {
    let entries = dns_entries(&[
        record("Web.Example.ORG", 60, "a", "10.0.0.1"),
        record("web.example.org.", 60, "A", "10.0.0.1"),
        record("web.example.org", 30, "A", "10.0.0.2"),
        record("web.example.org", 90, "AAAA", "fd00:0::1"),
        record("_x._tcp.example.org", 90, "SRV", "0 5 80 WEB.example.org"),
        record("alias.example.org", 90, "CNAME", "WEB.example.org"),
    ])
    .expect("entries");
    let descriptions: Vec<_> =
        entries.iter().map(|(name, record)| format!("{name}: {} {}", record.ttl, record.data)).collect();
    let expected = [
        "_x._tcp.example.org. SRV 80 web.example.org.: 90 SRV 0 5 80 web.example.org.",
        "alias.example.org. CNAME: 90 CNAME web.example.org.",
        "web.example.org. A 10.0.0.1: 30 A 10.0.0.1",
        "web.example.org. A 10.0.0.2: 30 A 10.0.0.2",
        "web.example.org. AAAA fd00::1: 90 AAAA fd00::1",
    ];
    assert_eq!(descriptions, expected, "records of one name and type share the shortest TTL");
}

#[test]
fn invalid_records_are_rejected() {
    let long_name =
        format!("{}.example.org", ["a".repeat(59), "b".repeat(59), "c".repeat(59), "d".repeat(59)].join("."));
    let a = |name: &str| record(name, 60, "A", "10.0.0.1");
    for (records, expected_error) in [
        (vec![a("web.example.com")], "web.example.com. is not in the zone example.org.: use the full name"),
        (vec![a("badexample.org")], "badexample.org. is not in the zone example.org."),
        (vec![a("a\\.example.org")], "a\\.example.org. is not in the zone example.org."),
        (vec![a("web..example.org")], "\"web..example.org\" cannot be the name of an entry"),
        (vec![a("_steadfast.web.example.org")], "record the owner of each name"),
        (vec![a("x._steadfast.web.example.org")], "record the owner of each name"),
        (vec![a("a._steadfast-owner.example.org")], "record the owner of each name"),
        (vec![a("")], "\"\" cannot be the name of an entry: it is empty"),
        (vec![a("bücher.example.org")], "it has letters beyond ASCII"),
        (vec![a(&format!("{}.example.org", "x".repeat(70)))], "cannot be the name of an entry"),
        (vec![record("example.org", 60, "CNAME", "x.")], "example.org. is the zone itself, and cannot have CNAME x."),
        (vec![a(&long_name)], "NAME may have up to 200 bytes"),
        (
            vec![a("web.example.org"), record("web.example.org", 60, "CNAME", "x.")],
            "cannot have both A 10.0.0.1 and CNAME x.",
        ),
        (
            vec![record("w.example.org", 60, "CNAME", "x."), record("w.example.org", 60, "CNAME", "y.")],
            "w.example.org. cannot have both CNAME x. and CNAME y.",
        ),
        (
            vec![DnsRecord { ttl: u32::MAX, ..a("web.example.org") }],
            "a TTL of 4294967295 s: the longest is 2147483647 s",
        ),
    ] {
        let error = dns_entries(&records).expect_err(expected_error);
        assert!(error.contains(expected_error), "{error}");
    }
    for (kind, text, expected_error) in [
        ("A", "fd00::1", "\"fd00::1\" is not valid data of a record of type A: use an address such as 10.0.0.1"),
        ("AAAA", "10.0.0.1", "use an address such as fd00::1"),
        ("SRV", "1 2 3", "use priority, weight, port and target"),
        ("SRV", "1 2 65536 a.", "use numbers from 0 to 65535"),
        ("CNAME", "a..b", "\"a..b\" cannot be the name of an entry"),
        ("CNAME", "", "it is empty"),
        ("MX", "a.", "use preference and server"),
        ("MX", "x a.", "use a number from 0 to 65535"),
        ("TXT", "\"a\" b", "use a text, or strings in quotes"),
        ("TXT", &format!("\"{}\"", "x".repeat(256)), "each of up to 255 bytes"),
        ("TXT", &"x".repeat(9000), "use a text of up to 8 KiB"),
        ("NS", "a.", "use a type that a mirror writes: A, AAAA, CNAME, SRV, TXT, MX or PTR"),
    ] {
        let error = RecordData::read(kind, text).expect_err(expected_error).to_string();
        assert!(error.contains(expected_error), "{error}");
    }
    let error = Zone::new("127.0.0.1", "example.org", key(), "a\" b").expect_err("no mark");
    assert!(error.to_string().starts_with("\"a\\\" b\" cannot be a mark"), "{error}");
}

#[test]
fn key_error_contains_no_secret() {
    for (text, expected_error) in [
        ("mirror:c2VjcmV0", "it is not of the form ALGORITHM:NAME:SECRET"),
        ("hmac-md5:mirror:c2VjcmV0", "its algorithm is not hmac-sha256"),
        ("hmac-sha256:a..b:c2VjcmV0", "its name is not a domain name"),
        ("hmac-sha256:mirror:c2Vjcm!0", "its secret is not valid Base64"),
        ("hmac-sha256:mirror:c2VjcmV0", "its secret has fewer than 16 bytes"),
    ] {
        let error = text.parse::<TsigKey>().expect_err(expected_error).to_string();
        assert!(error.contains(expected_error), "{error}");
        assert!(!error.contains("c2Vj"), "{error}");
    }
    let zone = Zone::new("127.0.0.1", "example.org", key(), "m").expect("a zone");
    assert!(format!("{zone:?}").contains("TsigKey(hmac-sha256:mirror.)"), "{zone:?}");
    assert!(!format!("{zone:?}").contains(&SECRET[..8]), "{zone:?}");
}

#[test]
fn server_port_defaults_to_53() {
    for (input, expected) in [
        ("10.0.0.1", "10.0.0.1:53"),
        ("10.0.0.1:5353", "10.0.0.1:5353"),
        ("fd00::1", "[fd00::1]:53"),
        ("[fd00::1]:5353", "[fd00::1]:5353"),
        ("ns.example.org", "ns.example.org:53"),
        ("ns.example.org:5353", "ns.example.org:5353"),
    ] {
        assert_eq!(with_port(input), expected);
    }
}

#[test]
fn steps_of_name_form_one_update() {
    let zone = Zone::new("[fd00::53]:5353", "example.org", key(), "m").expect("a zone");
    let own =
        dns_entries(&[record("old.example.org", 60, "A", "10.0.0.1"), record("web.example.org", 60, "A", "10.0.0.2")]);
    let found = ActualState { own: own.expect("entries"), others: [].into(), busy: [].into() };
    let desired = dns_entries(&[
        record("new.example.org", 30, "AAAA", "fd00::1"),
        record("web.example.org", 60, "CNAME", "new.example.org"),
    ]);
    let adds = desired.expect("entries").into_iter().map(|(name, value)| Step::Add { name, value });
    let removes = found.own.clone().into_iter().map(|(name, value)| Step::Remove { name, value });
    let expected = [
        "server fd00::53 5353",
        "zone example.org.",
        "prereq nxdomain new.example.org.",
        "prereq nxdomain _steadfast.new.example.org.",
        "update add new.example.org. 30 IN AAAA fd00::1",
        "update add _steadfast.new.example.org. 60 IN TXT \"steadfast:m\"",
        "send",
        "prereq yxrrset _steadfast.web.example.org. IN TXT \"steadfast:m\"",
        "update delete web.example.org. IN A 10.0.0.2",
        "update add web.example.org. 60 IN CNAME new.example.org.",
        "send",
        "prereq yxrrset _steadfast.old.example.org. IN TXT \"steadfast:m\"",
        "update delete old.example.org. IN A 10.0.0.1",
        "update delete _steadfast.old.example.org. IN TXT \"steadfast:m\"",
        "send",
    ];
    let steps: Vec<_> = adds.chain(removes).collect();
    assert_eq!(zone.describe(&found, &steps), expected);
    let step_outside_zone = Step::Add { name: "x".to_owned(), value: record("x.example.com.", 1, "A", "10.0.0.1") };
    let commands = zone.describe(&found, &[step_outside_zone, steps[0].clone()]);
    assert!(commands[0].starts_with("; x.example.com. is not in the zone"), "{commands:?}");
    assert_eq!(commands[1..], expected[..7]);
}

#[test]
fn semicolon_starts_no_comment_in_commands() {
    let zone = Zone::new("127.0.0.1", "example.org", key(), "m").expect("a zone");
    let desired = dns_entries(&[
        record("a;b.example.org", 60, "CNAME", "c;d.example.org"),
        record("text.example.org", 60, "TXT", "v=DKIM1; p=\\;"),
    ]);
    let steps: Vec<_> = desired.expect("entries").into_iter().map(|(name, value)| Step::Add { name, value }).collect();
    let found = ActualState { own: [].into(), others: [].into(), busy: [].into() };
    let commands = zone.describe(&found, &steps);
    for expected in [
        "prereq nxdomain _steadfast.a\\059b.example.org.",
        "update add a\\059b.example.org. 60 IN CNAME c\\059d.example.org.",
        // The text has one backslash, which is escaped, too.
        "update add text.example.org. 60 IN TXT \"v=DKIM1\\059 p=\\\\\\059\"",
    ] {
        assert!(commands.iter().any(|command| command == expected), "{expected}: {commands:#?}");
    }
    assert!(commands.iter().all(|command| !command.contains(';')), "{commands:#?}");
}

/// Behaviour of a server.
#[derive(Clone, Copy, Debug)]
enum ServerBehavior {
    /// Signs the response with a clock that is an hour ahead, and reports BADTIME.
    Ahead,
    /// Reports success without a signature.
    Unsigned,
    /// Signs with a different secret under the known key name.
    Forged,
    /// Signs the response to a request of another connection.
    Replayed,
    /// Ends a transfer before its last record.
    Short,
    /// Sends only a header.
    Nothing,
    /// Has the record of the term 6, and fails for all other names.
    LaterTerm,
}

async fn server(behavior: ServerBehavior) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut octets = vec![0; usize::from(stream.read_u16().await.expect("a length"))];
            stream.read_exact(&mut octets).await.expect("a message");
            let mut operation = Message::from_octets(octets).expect("a message");
            let response = response(behavior, &mut operation);
            let length = u16::try_from(response.len()).expect("a length");
            stream
                .write_all(&[&length.to_be_bytes(), &*response].concat())
                .await
                .expect("the client reads the response");
            // The client closes the connection.
            let _ = stream.read_u8().await;
        }
    });
    address
}

fn response(behavior: ServerBehavior, operation: &mut Message<Vec<u8>>) -> Vec<u8> {
    let (valid_key, now) = (key().tsig, Time48::now());
    let ahead = Time48::from_u64(u64::from(now) + 3600);
    let plain = |operation: &Message<Vec<u8>>| {
        MessageBuilder::new_vec().start_answer(operation, Rcode::NOERROR).expect("an answer")
    };
    match behavior {
        ServerBehavior::Ahead => {
            let error = ServerTransaction::request(&valid_key, operation, ahead).expect_err("too late");
            let builder = MessageBuilder::new_vec();
            error.build_message(&operation.for_slice_ref(), builder).expect("an answer").finish()
        }
        ServerBehavior::Unsigned => plain(operation).finish(),
        ServerBehavior::Nothing => plain(operation).finish()[..12].to_vec(),
        ServerBehavior::Forged => {
            let name = valid_key.name().clone();
            let other_key = Tsig::new(valid_key.algorithm(), b"not the same secret", name, None, None).expect("a key");
            // Signed as for a request with the other key.
            let mut forged_request = MessageBuilder::new_vec().question().additional();
            domain::tsig::ClientTransaction::request(&other_key, &mut forged_request, now).expect("a request");
            let mut forged_request = Message::from_octets(forged_request.finish()).expect("a message");
            let forged =
                ServerTransaction::request(&other_key, &mut forged_request, now).expect("ours").expect("signed");
            let mut message = plain(operation).additional();
            forged.answer(&mut message, now).expect("an answer");
            message.finish()
        }
        ServerBehavior::Replayed => {
            let mut earlier_request = MessageBuilder::new_vec().question().additional();
            domain::tsig::ClientTransaction::request(&valid_key, &mut earlier_request, now).expect("a request");
            let mut earlier_request = Message::from_octets(earlier_request.finish()).expect("a message");
            let replayed =
                ServerTransaction::request(&valid_key, &mut earlier_request, now).expect("ours").expect("signed");
            let mut message = plain(operation).additional();
            replayed.answer(&mut message, now).expect("an answer");
            message.finish()
        }
        ServerBehavior::LaterTerm => {
            let transaction = ServerTransaction::request(&valid_key, operation, now).expect("ours").expect("signed");
            let name = operation.first_question().expect("a question").qname().to_string();
            let is_term = name.starts_with("term-");
            let rcode = if is_term { Rcode::NOERROR } else { Rcode::SERVFAIL };
            let mut message = MessageBuilder::new_vec().start_answer(operation, rcode).expect("an answer");
            if is_term {
                let text = record::text_octets(&["steadfast:m", "6", "1000"].map(|text| text.as_bytes().to_vec()));
                let data = domain::base::UnknownRecordData::from_octets(Rtype::TXT, text).expect("data");
                message.push((record::parse_name(&name).expect("a name"), Class::IN, 60, data)).expect("room");
            }
            let mut message = message.additional();
            transaction.answer(&mut message, now).expect("an answer");
            message.finish()
        }
        ServerBehavior::Short => {
            let transaction = ServerTransaction::request(&valid_key, operation, now).expect("ours").expect("signed");
            let mut message = plain(operation);
            let name: Name<Vec<u8>> = record::parse_name("web.example.org").expect("a name");
            let data = domain::base::UnknownRecordData::from_octets(Rtype::A, vec![10, 0, 0, 1]).expect("data");
            message.push((name, Class::IN, 60, data)).expect("room");
            let mut message = message.additional();
            transaction.answer(&mut message, now).expect("an answer");
            message.finish()
        }
    }
}

#[tokio::test]
async fn unauthenticated_response_is_rejected() {
    for (behavior, expected_error) in [
        (ServerBehavior::Ahead, "the key mirror.: the clock of the server is 3600 s ahead (BADTIME): set both clocks"),
        (ServerBehavior::Unsigned, "the response is not signed and was rejected"),
        (
            ServerBehavior::Forged,
            "the signature of the response is not valid (bad signature); the response was rejected",
        ),
        (
            ServerBehavior::Replayed,
            "the signature of the response is not valid (bad signature); the response was rejected",
        ),
        (ServerBehavior::Short, "has an unknown form: a transfer that does not start and end with the SOA record"),
        (ServerBehavior::Nothing, "was rejected"),
    ] {
        let zone = Zone::new(&server(behavior).await, "example.org", key(), "m").expect("a zone");
        let error = zone.read().await.expect_err(expected_error).to_string();
        assert!(error.contains(expected_error), "{behavior:?}: {error}");
        if matches!(behavior, ServerBehavior::Short) {
            continue;
        }
        let desired = dns_entries(&[record("web.example.org", 30, "A", "10.0.0.1")]).expect("entries");
        let steps: Vec<_> = desired.into_iter().map(|(name, value)| Step::Add { name, value }).collect();
        let error = zone.apply(&steps).await.expect_err(expected_error).to_string();
        assert!(error.contains(expected_error), "{behavior:?}: {error}");
    }
}

#[tokio::test]
async fn unreadable_zone_is_not_changed() {
    let address = server(ServerBehavior::Unsigned).await;
    let zone = Zone::new(&address, "example.org", key(), "m").expect("a zone");
    let settings = MirrorSettings { limits: Limits { share: 1.0, ..Limits::default() }, ..MirrorSettings::default() };
    let mirror = Mirror::start("zone", zone, settings, MirrorMemory::volatile());
    mirror.set_desired(DesiredState::new(
        dns_entries(&[record("web.example.org", 30, "A", "10.0.0.1")]).expect("entries"),
    ));
    let mut status = mirror.status();
    let status = status.wait_for(|status| status.failing.is_some()).await.expect("a mirror at work").clone();
    assert_eq!((status.reads, status.applied), (0, Vec::new()));
}

fn desired(records: &[DnsRecord]) -> BTreeMap<String, DnsRecord> {
    records.iter().map(|record| entry("example.org", record.clone()).expect("valid")).collect()
}

#[test]
fn text_uses_zone_file_syntax() {
    let long = "x".repeat(300);
    for (text, shown) in [
        ("v=spf1 -all", "TXT \"v=spf1 -all\""),
        (r#""a" "b c""#, r#"TXT "a" "b c""#),
        (r#""a\"\\ \195\188""#, r#"TXT "a\"\\ \195\188""#),
        ("ü", r#"TXT "\195\188""#),
        ("", "TXT \"\""),
        (&long, &format!("TXT \"{}\" \"{}\"", "x".repeat(255), "x".repeat(45))),
    ] {
        assert_eq!(RecordData::read("TXT", text).expect("a text").to_string(), shown);
    }
    assert_eq!(RecordData::read("MX", "10 MX.example.org").expect("MX").to_string(), "MX 10 mx.example.org.");
    assert_eq!(RecordData::read("PTR", "A.example.org").expect("PTR").to_string(), "PTR a.example.org.");
    let (name, _) = entry("example.org", record("example.org", 1, "TXT", &long)).expect("valid");
    assert!(name.len() < 140 && name.contains('…'), "{name}");
}

#[test]
fn rfc_2181_maximum_ttl_is_valid() {
    let all = desired(&[
        record("web.example.org", 86_400, "A", "10.0.0.1"),
        record("x.example.org", i32::MAX as u32, "A", "10.0.0.1"),
    ]);
    assert_eq!(all.values().map(|record| record.ttl).collect::<Vec<_>>(), [86_400, 2_147_483_647]);
}

#[test]
fn validate_rejects_only_conflicting_records() {
    let zone = Zone::new("127.0.0.1", "example.org", key(), "m").expect("a zone");
    let mut all = desired(&[
        record("web.example.org", 60, "A", "10.0.0.1"),
        record("web.example.org", 30, "A", "10.0.0.2"),
        record("web.example.org", 90, "CNAME", "x."),
        record("alias.example.org", 90, "CNAME", "x."),
        record("example.org", 90, "CNAME", "x."),
        record("example.org", 90, "A", "10.0.0.3"),
    ]);
    let rejected = zone.validate(&mut all);
    assert_eq!(rejected.keys().collect::<Vec<_>>(), ["example.org. CNAME", "web.example.org. CNAME"]);
    assert!(rejected["web.example.org. CNAME"].contains("cannot have both A 10.0.0.1 and CNAME x."), "{rejected:?}");
    let remaining: Vec<_> = all.iter().map(|(name, record)| format!("{name} {}", record.ttl)).collect();
    let expected = [
        "alias.example.org. CNAME 90",
        "example.org. A 10.0.0.3 90",
        "web.example.org. A 10.0.0.1 30",
        "web.example.org. A 10.0.0.2 30",
    ];
    assert_eq!(remaining, expected);
}

#[test]
fn validate_keeps_alias_and_foreign_records() {
    let zone = Zone::new("127.0.0.1", "example.org", key(), "m").expect("a zone");
    let alias = record("web.example.org.", 90, "CNAME", "x.");
    let foreign = record("example.org.", 300, "TXT", "theirs");
    zone.state().contents = ZoneContents {
        own: [("web.example.org. CNAME".to_owned(), alias.clone())].into(),
        foreign: [("example.org.".to_owned(), vec![foreign.clone()])].into(),
        ..ZoneContents::default()
    };
    let mut all = desired(&[
        alias,
        record("web.example.org", 60, "A", "10.0.0.1"),
        record("example.org", 60, "TXT", "theirs"),
        record("example.org", 60, "TXT", "ours"),
    ]);
    let rejected = zone.validate(&mut all);
    assert_eq!(rejected.keys().collect::<Vec<_>>(), ["example.org. TXT \"theirs\"", "web.example.org. A 10.0.0.1"]);
    assert_eq!(all["example.org. TXT \"ours\""].ttl, 300, "the TTL of the foreign record applies");
}

#[test]
fn zones_route_records_by_longest_suffix() {
    let zone = |name: &str| Zone::new("127.0.0.1", name, key(), "m").expect("a zone");
    let zones = Zones::new(vec![zone("example.org"), zone("b.example.org"), zone("10.in-addr.arpa")]).expect("zones");
    let entry_name_of = |name: &str| {
        zones.entry(record(name, 1, "A", "10.0.0.1")).map(|(name, _)| name).map_err(|error| error.to_string())
    };
    assert_eq!(entry_name_of("a.b.Example.org").as_deref(), Ok("a.b.example.org. A 10.0.0.1"));
    assert_eq!(entry_name_of("b.example.org").as_deref(), Ok("b.example.org. A 10.0.0.1"));
    let error = entry_name_of("a.example.net").expect_err("in none");
    assert!(error.contains("is not in the zone 10.in-addr.arpa., b.example.org., example.org."), "{error}");
    let steps: Vec<_> = ["a.b.example.org", "a.example.org"]
        .map(|name| record(&format!("{name}."), 1, "A", "10.0.0.1"))
        .map(|value| Step::Add { name: value.name.clone(), value })
        .into();
    let found = ActualState { own: [].into(), others: [].into(), busy: [].into() };
    let commands = zones.describe(&found, &steps);
    let lines_with = |start: &str| commands.iter().filter(|line| line.starts_with(start)).cloned().collect::<Vec<_>>();
    assert_eq!(lines_with("zone "), ["zone b.example.org.", "zone example.org."]);
    assert!(Zones::new(vec![zone("a."), zone("A")]).is_err());
    assert!(Zones::new(Vec::new()).is_err());
}

#[tokio::test(start_paused = true)]
async fn hanging_zones_are_claimed_concurrently() {
    // The server accepts connections, and never responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let zones = ["a.", "b.", "c.", "d."].map(|name| Zone::new(&address, name, key(), "m").expect("a zone"));
    let zones = Zones::new(zones.into()).expect("zones");
    let started = Instant::now();
    zones.claim("one", 1000).await.expect_err("no response");
    Target::record_term(&zones, 1, 1000).await.expect_err("no response");
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hanging_names_are_resolved_concurrently() {
    let address: SocketAddr = "10.0.0.1:53".parse().expect("an address");
    let lookup = |server: &'static str| async move {
        if server.starts_with("hang") {
            std::future::pending::<()>().await;
        }
        Ok::<_, std::io::Error>([address].into_iter())
    };
    let started = Instant::now();
    let (resolved, reason) = resolve_all("hang1:53,hang2:53,10.0.0.1:53", lookup).await;
    assert_eq!((resolved, &*reason), (vec![address], "no response within 3s"));
    assert_eq!(started.elapsed(), RESOLVE_TIMEOUT);
}

#[tokio::test]
async fn unknown_renewal_of_later_term_prevents_updates() {
    let zone = Zone::new(&server(ServerBehavior::LaterTerm).await, "example.org", key(), "m").expect("a zone");
    let error = zone.record_term(5, 5000).await.expect_err("no renewal");
    assert!(matches!(error, DnsError::Rejected { rcode: Rcode::SERVFAIL, .. }), "{error}");
    assert!(zone.state().term.is_some(), "updates require the term of this process");
}
