use std::collections::BTreeMap;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::messages::{
    Attributes, append_attribute, parse_server, parse_service, server_attributes, service_attributes, service_id,
};
use super::socket::{MAX_REPLY_MESSAGES, Replies, encode_request};
use super::*;

/// Messages between `ipvsadm` of Debian 12 and a kernel 6.1, on a little-endian machine.
#[cfg(target_endian = "little")]
mod recorded_messages {
    use super::*;

    /// `ipvsadm -Ln`: requests the real servers of TCP 10.9.0.1:80.
    const REQUEST_MESSAGE: &str = "44000000 1c00 0503 07000000 00000000 08010000 30000180 0600010002000000 0600020006000000 \
        14000300 0a090001 000000000000000000000000 0600040000500000";

    /// Service with the scheduler `wrr`, without its counters.
    const SERVICE_MESSAGE: &str = "54000100 0600010002000000 0600020006000000 140003000a090001000000000000000000000000 \
        0600040000500000 0800060077727200 0c00070002000000ffffffff 0800080000000000 08000900ffffffff";

    /// 10.8.0.2:8001 with the weight 3, masqueraded. The traffic counters are removed. The recorded connection counters
    /// of zero are replaced by two active and one inactive connection.
    const SERVER_MESSAGE: &str = "78000200 140001000a080002000000000000000000000000 060002001f410000 0800030000000000 \
        0800040003000000 05000d0000000000 06000e0000000000 06000f0000000000 0800050000000000 0800060000000000 \
        0800070002000000 0800080001000000 0800090000000000 06000b0002000000";

    fn decode_hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
        (0..digits.len()).step_by(2).map(pair).collect()
    }

    #[test]
    fn request_equals_ipvsadm_request() {
        assert_eq!(
            encode_request(0x1c, 7, messages::GET_DEST, ReplyCount::All, service_id(&web_service())),
            decode_hex(REQUEST_MESSAGE)
        );
    }

    #[test]
    fn recorded_service_is_parsed() {
        let parsed = parse_service(&decode_hex(SERVICE_MESSAGE)).expect("a service");
        assert!(parsed.has_settings_of(&web_service()), "{parsed:?}");
        assert!(!parsed.has_settings_of(&web_service().scheduler("rr").expect("a name")));
        assert!(!parsed.has_settings_of(&web_service().persistent(0)));
    }

    #[test]
    fn recorded_server_is_parsed_with_connections() {
        let parsed = parse_server(&decode_hex(SERVER_MESSAGE), &web_service()).expect("a real server");
        assert_eq!(parsed, listed_server("10.8.0.2:8001", 3, (2, 1)));
        let special = SERVER_MESSAGE.replace("0800050000000000", "0800050009000000");
        assert!(
            parse_server(&decode_hex(&special), &web_service()).expect("a real server").is_special,
            "a limit of connections"
        );
    }

    #[test]
    fn truncated_message_is_an_error() {
        for text in [decode_hex(SERVICE_MESSAGE), decode_hex(SERVER_MESSAGE)] {
            for end in 0..text.len() {
                assert!(
                    parse_service(&text[..end]).is_err() && parse_server(&text[..end], &web_service()).is_err(),
                    "{end}"
                );
            }
        }
    }
}

fn web_service() -> VirtualService {
    VirtualService::tcp("10.9.0.1:80".parse().expect("an address"))
        .expect("a service")
        .scheduler("wrr")
        .expect("a name")
}

fn listed_server(address: &str, weight: u32, (active, inactive): (u32, u32)) -> ListedRealServer {
    let (address, forward) = (address.parse().expect("an address"), Some(ForwardingMethod::Masquerade));
    ListedRealServer { address, weight, forward, is_special: false, active, inactive }
}

fn masqueraded(weight: u16) -> RealServer {
    RealServer::new(weight, ForwardingMethod::Masquerade)
}

fn add(name: &str, value: RealServer) -> Step<RealServer> {
    Step::Add { name: name.to_owned(), value }
}

#[test]
fn service_attributes_round_trip() {
    let services = [
        web_service(),
        web_service().persistent(300),
        VirtualService::udp("[fd00::1]:53".parse().expect("an address")).expect("a service").persistent(60),
    ];
    for service in services {
        let parsed = parse_service(&service_attributes(&service)).expect("a service");
        assert!(parsed.has_settings_of(&service), "{service:?} {parsed:?}");
    }
    // The kernel adds its own flag for known services.
    let mut flagged = Vec::new();
    append_attribute(&mut flagged, 6, b"wrr\0");
    append_attribute(&mut flagged, 7, &[3_u32.to_ne_bytes(), [0; 4]].concat());
    append_attribute(&mut flagged, 8, &300_u32.to_ne_bytes());
    append_attribute(&mut flagged, 9, &u32::MAX.to_ne_bytes());
    let mut service = Vec::new();
    append_attribute(&mut service, 1, &flagged);
    let parsed = parse_service(&service).expect("a service");
    assert!(
        parsed.has_settings_of(&web_service().persistent(300))
            && !parsed.has_settings_of(&web_service())
            && !parsed.has_settings_of(&web_service().persistent(301)),
        "{parsed:?}"
    );
}

#[test]
fn server_message_has_required_attributes() {
    let address: SocketAddr = "[fd00::2]:53".parse().expect("an address");
    for (number, forward) in
        [(0_u32, ForwardingMethod::Masquerade), (2, ForwardingMethod::Tunnel), (3, ForwardingMethod::Direct)]
    {
        let text = server_attributes(&web_service(), address, Some(&RealServer::new(9, forward)));
        let [service, server] = [1, 2].map(|kind| Attributes::parse(&text).expect("attributes").get(kind).expect("it"));
        assert_eq!(Attributes::parse(service).expect("attributes").bytes::<2>(4), Ok([0, 80]));
        let server = Attributes::parse(server).expect("attributes");
        assert_eq!(server.bytes::<16>(1).map(std::net::Ipv6Addr::from), Ok("fd00::2".parse().expect("an address")));
        assert_eq!((server.bytes::<2>(2), server.bytes::<2>(11)), (Ok([0, 53]), Ok(10_u16.to_ne_bytes())));
        let numbers = [3, 4, 5, 6].map(|kind| server.bytes(kind).map(u32::from_ne_bytes));
        assert_eq!(numbers, [Ok(number), Ok(9), Ok(0), Ok(0)]);
    }
}

/// Netlink message.
fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as u32;
    let header = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0, 0], &sequence.to_ne_bytes(), &[0; 4]].concat();
    let mut text = [&header, body].concat();
    text.resize(text.len().next_multiple_of(4), 0);
    text
}

#[test]
fn replies_to_other_requests_are_skipped() {
    let (error, done) = (2, 3);
    let mut replies = Replies::new(7);
    let other_error = message(error, 6, &(-1_i32).to_ne_bytes());
    replies
        .parse(&[other_error, message(28, 7, b"\x05\x01\0\0one!"), message(28, 7, b"\x05\x01\0\0two")].concat())
        .expect("two");
    assert!(!replies.are_complete);
    replies.parse(&message(done, 7, &[0; 4])).expect("the end");
    assert!(replies.are_complete);
    assert_eq!(replies.bodies, [b"one!".to_vec(), b"two".to_vec()]);

    let result = Replies::new(7).parse(&message(error, 7, &[(-3_i32).to_ne_bytes(), [0; 4]].concat()));
    assert!(matches!(result, Err(NetlinkError::Rejected(3))), "{result:?}");
    let result = Replies::new(7).parse(&message(done, 7, &(-1_i32).to_ne_bytes()));
    assert!(matches!(result, Err(NetlinkError::Rejected(1))), "{result:?}");
    let result = Replies::new(7).parse(&message(error, 7, &i32::MIN.to_ne_bytes()));
    assert!(matches!(result, Err(NetlinkError::Rejected(i32::MAX))), "{result:?}");
}

#[test]
fn endless_reply_is_rejected() {
    let mut replies = Replies::new(7);
    let piece = message(28, 6, b"\x05\x01\0\0").repeat(1024);
    let error = (0..=MAX_REPLY_MESSAGES / 1024).find_map(|_| replies.parse(&piece).err()).expect("an error");
    assert!(matches!(error, NetlinkError::Unexpected(reason) if reason == "more than 65536 messages"));
}

proptest! {
    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u16..30) {
        let _ = Replies::new(0).parse(&text);
        let _ = Replies::new(0).parse(&message(kind, 0, &text));
        let mut nested = Vec::new();
        append_attribute(&mut nested, kind % 3, &text);
        let _ = (parse_service(&nested), parse_server(&nested, &web_service()));
    }
}

#[test]
fn busy_and_drifted_servers_are_detected() {
    let servers = || {
        let special = ListedRealServer { is_special: true, ..listed_server("10.8.0.4:80", 1, (0, 0)) };
        let unknown_forwarding = ListedRealServer { forward: None, ..listed_server("10.8.0.5:80", 1, (0, 0)) };
        vec![
            listed_server("10.8.0.2:80", 1, (1, 0)),
            listed_server("10.8.0.3:80", 0, (0, 9)),
            special,
            unknown_forwarding,
            listed_server("10.8.0.6:80", 70_000, (0, 0)),
        ]
    };
    let found = Ipvs::new(web_service()).actual_state(servers(), true);
    assert_eq!(found.busy.iter().collect::<Vec<_>>(), ["10.8.0.2:80"]);
    let right = found.own.iter().map(|(name, server)| (&**name, *server == masqueraded(server.weight)));
    let expected = [
        ("10.8.0.2:80", true),
        ("10.8.0.3:80", true),
        ("10.8.0.4:80", false),
        ("10.8.0.5:80", false),
        ("10.8.0.6:80", false),
    ];
    assert_eq!(right.collect::<BTreeMap<_, _>>(), BTreeMap::from(expected));
    // After a scheduler change the service is sent first, then each server.
    let found = Ipvs::new(web_service()).actual_state(servers(), false);
    assert!(found.own.values().all(|server| *server != masqueraded(server.weight)));
    // No packet ends a UDP connection, so a server with inactive connections is busy too.
    let resolver = Ipvs::new(VirtualService::udp("10.9.0.1:53".parse().expect("an address")).expect("a service"));
    assert_eq!(resolver.actual_state(servers(), true).busy.iter().collect::<Vec<_>>(), ["10.8.0.2:80", "10.8.0.3:80"]);
}

#[test]
fn described_steps_are_ipvsadm_commands() {
    let ipvs = Ipvs::new(web_service());
    let steps = [
        add("10.8.0.2:80", RealServer::new(3, ForwardingMethod::Direct)),
        Step::Change { name: "10.8.0.3:8080".to_owned(), from: masqueraded(2), to: masqueraded(0) },
        Step::Remove { name: "10.8.0.4:80".to_owned(), value: masqueraded(0) },
    ];
    let expected = [
        "ipvsadm -a -t 10.9.0.1:80 -r 10.8.0.2:80 -g -w 3",
        "ipvsadm -e -t 10.9.0.1:80 -r 10.8.0.3:8080 -m -w 0",
        "ipvsadm -d -t 10.9.0.1:80 -r 10.8.0.4:80",
    ];
    let found = ipvs.actual_state(vec![listed_server("10.8.0.4:80", 0, (0, 0))], true);
    assert_eq!(ipvs.describe(&found, &steps), expected);
    let found = ipvs.actual_state(vec![listed_server("10.8.0.4:80", 0, (0, 0))], false);
    assert_eq!(ipvs.describe(&found, &steps)[0], "ipvsadm -E -t 10.9.0.1:80 -s wrr");
    assert_eq!(ipvs.describe(&found, &steps[2..]), expected[2..], "the service stays unchanged");
    let six = VirtualService::udp("[fd00::1]:53".parse().expect("an address")).expect("a service");
    let six = Ipvs::new(six.persistent(60));
    let found = six.actual_state(Vec::new(), true);
    let steps = [add("[fd00::2]:53", RealServer::new(1, ForwardingMethod::Tunnel)), add("10.8.0.2:53", masqueraded(1))];
    let expected = [
        "ipvsadm -A -u [fd00::1]:53 -s wlc -p 60 # if it does not exist",
        "ipvsadm -a -u [fd00::1]:53 -r [fd00::2]:53 -i -w 1",
        "# the real server 10.8.0.2:53 is not of the address family of [fd00::1]:53",
    ];
    assert_eq!(six.describe(&found, &steps), expected);
}

#[test]
fn invalid_names_are_rejected_locally() {
    for name in ["web-1", "10.8.0.2", "10.8.0.2:0", "[FD00::2]:80", "[fe80::1%2]:80", "10.8.0.02:80", ""] {
        let error = Ipvs::new(web_service()).check_server(name, Some(&masqueraded(1))).expect_err(name);
        assert!(matches!(error, IpvsError::Name(_)), "{name}: {error}");
    }
    let error = Ipvs::new(web_service())
        .check_server("10.8.0.2:8080", Some(&RealServer::new(1, ForwardingMethod::Tunnel)))
        .expect_err("a port");
    assert!(error.to_string().ends_with("use the same port, or the forwarding method masquerade"), "{error}");
    assert!(Ipvs::new(web_service()).check_server("[fd00::2]:0", None).is_ok(), "foreign servers can be removed");
    for address in ["0.0.0.0:80", "10.9.0.1:0", "[::]:80", "[fe80::1%2]:80"] {
        let error = VirtualService::tcp(address.parse().expect("an address")).expect_err(address);
        assert!(matches!(error, IpvsError::Service(_)), "{error}");
    }
    for name in ["", "WRR", "wrr ", "a-very-long-name-of-a-scheduler"] {
        assert!(matches!(web_service().scheduler(name), Err(IpvsError::Scheduler(_))), "{name:?}");
    }
}

#[test]
fn validate_removes_invalid_servers() {
    let desired = ["10.8.0.2:80", "web-1", "[fd00::2]:80", "10.8.0.3:0"];
    let mut desired: BTreeMap<_, _> = desired.map(|name| (name.to_owned(), masqueraded(1))).into();
    let reasons = Ipvs::new(web_service()).validate(&mut desired);
    assert_eq!(desired.keys().collect::<Vec<_>>(), ["10.8.0.2:80"]);
    assert_eq!(reasons.len(), 3);
    assert!(reasons["[fd00::2]:80"].contains("not of the address family of 10.9.0.1:80"), "{reasons:?}");
}

#[test]
fn kernel_rejection_includes_remedy() {
    let ipvs = Ipvs::new(web_service().scheduler("mh").expect("a name"));
    let step = add("10.8.0.2:80", masqueraded(1));
    for (code, command, remedy) in [
        (
            1,
            IpvsCommand::GetService,
            "`ipvsadm -Ln -t 10.9.0.1:80`: Operation not permitted (os error 1); the program needs CAP_NET_ADMIN",
        ),
        (2, IpvsCommand::AddService, "; `modprobe ip_vs_mh`, or use a scheduler of this kernel"),
        (2, IpvsCommand::Step(&step), "; another program removed the server"),
        (3, IpvsCommand::Step(&step), "; another program removed the service"),
        (17, IpvsCommand::Step(&step), "; another program added the same entry"),
        (22, IpvsCommand::Step(&step), "; use unicast addresses"),
    ] {
        let error = ipvs_error(NetlinkError::Rejected(code), || ipvs.command_line(command)).to_string();
        assert!(error.contains(remedy), "{error}");
    }
}
