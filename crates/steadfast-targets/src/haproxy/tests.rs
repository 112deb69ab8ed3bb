use super::*;

/// Response of HAProxy 2.6.
const STATE_RESPONSE: &str = "\
1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port
3 web 1 other 127.0.0.1 2 0 0 0 1 1 0 2 0 0 0 0 - 1 - 0 0 - - 0
3 web 2 sf-a 10.0.0.1 2 0 10 10 0 1 0 0 0 0 0 0 - 8001 - 0 0 - - 0
3 web 3 sf-b fd00::1 0 1 7 10 0 1 0 0 0 0 0 0 - 8002 - 0 0 - - 0

";

fn haproxy() -> Haproxy {
    Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-").expect("plain names")
}

#[test]
fn state_columns_are_read_by_name() {
    // The port `-` belongs to a foreign server without a port.
    for state in [
        STATE_RESPONSE.to_owned(),
        STATE_RESPONSE.replace("- 1 - 0", "- - - 0").replace("other 127.0.0.1 2 0 0", "other - 2 0 x"),
    ] {
        let (read, others) = responses::parse_servers(&state, "sf-").expect("a table");
        let result: Vec<_> = read
            .iter()
            .map(|server| format!("{} {} {} {}", server.name, server.address, server.weight, server.is_ready))
            .collect();
        assert_eq!(result, ["sf-a 10.0.0.1:8001 10 true", "sf-b [fd00::1]:8002 7 false"]);
        assert_eq!(others, BTreeSet::from(["other".to_owned()]));
    }
    let (head, rest) = STATE_RESPONSE.split_once("srv_addr srv_op_state").expect("two columns");
    let swapped = format!("{head}srv_op_state srv_addr{rest}").replace("10.0.0.1 2", "2 10.0.0.1");
    let (read, _) = responses::parse_servers(&swapped, "sf-").expect("a table");
    assert_eq!(read[0].address, "10.0.0.1:8001".parse().expect("an address"));
}

#[test]
fn response_without_table_is_an_error() {
    let servers = |response: &str| responses::parse_servers(response, "sf-").expect_err("no table");
    assert_eq!(servers("Can't find backend.\n"), responses::ParseError::ErrorResponse);
    assert_eq!(servers(""), responses::ParseError::ErrorResponse);
    let cut = servers(&STATE_RESPONSE.replace(" 10 10 0 1", " ten 10 0 1"));
    assert!(matches!(&cut, responses::ParseError::Malformed(reason) if reason.contains("srv_uweight")), "{cut:?}");
}

#[test]
fn own_server_sessions_are_parsed() {
    let response = "# pxname,svname,qcur,qmax,scur,smax,\nweb,other,0,0,-,0,\nweb,sf-a,0,0,2,7,\n\n";
    assert_eq!(responses::parse_session_counts(response, "sf-"), Ok(BTreeMap::from([("sf-a".to_owned(), 2)])));
    assert_eq!(responses::parse_session_counts("No such proxy.\n", "sf-"), Err(responses::ParseError::ErrorResponse));
}

#[test]
fn response_confirms_or_rejects_commands() {
    let add = ["add server b/a 127.0.0.1:1 weight 1", "enable health b/a", "set server b/a state ready"];
    let del = ["set server b/a state maint", "shutdown sessions server b/a", "del server b/a"];
    let change = ["set server b/a addr 127.0.0.2 port 2", "set server b/a weight 1"];
    let outcome = |commands: &[&str], response: &str| {
        let commands: Vec<_> = commands.iter().map(|command| (*command).to_owned()).collect();
        responses::check_confirmations(&commands, response)
    };
    for (commands, response, error_line) in [
        (&add[..], "New server registered.\n\n\n\n", None),
        (&add, "Already exists a server with the same name in backend.\n\n\n", Some("Already exists a server")),
        (
            &add,
            "New server registered.\n\nHealth checks are not configured on this server, cannot enable.\n",
            Some("Health"),
        ),
        (&add, "\n", Some("no confirmation")),
        (&del, "\n\nServer deleted.\n", None),
        (&del, "\n\nOnly servers in maintenance mode can be deleted.\n", Some("Only servers")),
        (&del[..1], "\n", None),
        (&change, "IP changed from '127.0.0.1' to '127.0.0.2', port changed …\n\n", None),
        (&change, "no need to change the addr, no need to change the port\n\n", None),
        (&change, "No such server.\n\nNo such server.\n", Some("No such server.")),
        (&change[1..], "Permission denied\n", Some("Permission denied")),
    ] {
        let result = outcome(commands, response);
        match error_line {
            None => assert_eq!(result, Ok(()), "{commands:?}: {response}"),
            Some(reason) => {
                assert!(result.as_ref().is_err_and(|result| result.starts_with(reason)), "{commands:?}: {result:?}");
            }
        }
    }
}

#[test]
fn combined_response_is_split_by_headers() {
    let info = "Name: HAProxy\nPid: 7\nUptime_sec: 3\nnode: # be_id\n\n";
    let stat = "# pxname,svname,scur,\nweb,sf-a,0,\n\n";
    let state = &STATE_RESPONSE[2..];
    let response = format!("{info}1\n{state}{stat}");
    assert_eq!(responses::split_sections(&response), [&*format!("{info}1\n"), state, stat]);
    let response = format!("{info}Can't find backend.\n\nNo such proxy.\n");
    assert_eq!(responses::split_sections(&response), [&*response, "", ""]);
    assert_eq!(responses::error_line(&response), "Can't find backend.");
}

#[test]
fn validate_removes_invalid_servers() {
    let server = |address: &str, weight| Server { address: address.parse().expect("an address"), weight };
    let desired = [
        ("good", server("10.0.0.1:80", 256)),
        ("a b", server("10.0.0.1:80", 1)),
        ("heavy", server("10.0.0.1:80", 257)),
        ("nowhere", server("0.0.0.0:80", 1)),
        ("portless", server("10.0.0.1:0", 1)),
        ("scoped", server("[fe80::1%2]:80", 1)),
    ];
    let mut desired: BTreeMap<_, _> = desired.into_iter().map(|(name, server)| (name.to_owned(), server)).collect();
    let reasons = haproxy().validate(&mut desired);
    assert_eq!(desired.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(reasons.keys().collect::<Vec<_>>(), ["a b", "heavy", "nowhere", "portless", "scoped"]);
    assert_eq!(reasons["heavy"], "the server sf-heavy cannot have the weight 257: from 0 to 256");
}

#[test]
fn entry_names_fit_after_prefix() {
    let prefix = "p".repeat(96);
    for key in ["web-1", "c1/shop/web-1", &"x".repeat(300)] {
        let target = Haproxy::new(Path::new("/s"), "web", &prefix).expect("a prefix");
        target.full_name(&entry_name(&prefix, key)).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(entry_name("sf-", "web-1"), "web-1");
    let error = Haproxy::new(Path::new("/s"), "web", &"p".repeat(97)).expect_err("too long");
    assert!(matches!(error, HaproxyError::Prefix(_)), "{error}");
}

#[test]
fn added_server_gets_server_options() {
    let options = "check inter 1s maxconn 7".parse().expect("options");
    let target = haproxy().server_options(options);
    let server = Server { address: "10.0.0.1:80".parse().expect("an address"), weight: 5 };
    let add = target.commands(&Step::Add { name: "a".to_owned(), value: server }).expect("commands");
    let expected = [
        "add server web/sf-a 10.0.0.1:80 weight 5 check inter 1s maxconn 7",
        "enable health web/sf-a",
        "set server web/sf-a state ready",
    ];
    assert_eq!(add, expected);
    let listed_server = |checks| ListedServer {
        name: "sf-a".to_owned(),
        address: server.address,
        weight: 5,
        is_ready: true,
        is_check_disabled: checks,
    };
    assert_eq!(target.actual_state(vec![listed_server(false)], &BTreeMap::new()).own["a"], server);
    // The addition of this server was interrupted before its checks were enabled, so it counts as out of service.
    let from = target.actual_state(vec![listed_server(true)], &BTreeMap::new()).own["a"];
    assert_eq!(from.weight, 0);
    let change = target.commands(&Step::Change { name: "a".to_owned(), from, to: server }).expect("commands");
    let expected = ["set server web/sf-a weight 5", "enable health web/sf-a", "set server web/sf-a state ready"];
    assert_eq!(change, expected);
}

#[test]
fn described_steps_are_socat_commands() {
    let server = Server { address: "10.0.0.1:80".parse().expect("an address"), weight: 5 };
    let add = Step::Add { name: "a".to_owned(), value: server };
    let to = Server { weight: 0, ..server };
    let drain = Step::Change { name: "a".to_owned(), from: server, to };
    let remove = Step::Remove { name: "a".to_owned(), value: to };
    let found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
    let described = haproxy().describe(&found, &[add, drain, remove]);
    let expected = [
        "add server web/sf-a 10.0.0.1:80 weight 5",
        "set server web/sf-a state ready",
        "set server web/sf-a weight 0",
        "set server web/sf-a state ready",
        "set server web/sf-a state maint",
        "shutdown sessions server web/sf-a",
        "del server web/sf-a",
    ];
    assert_eq!(described, expected.map(|command| format!("echo '{command}' | socat stdio /run/haproxy/admin.sock")));
}

#[test]
fn command_injection_in_name_is_rejected() {
    for name in ["a b", "a;b", "a\nshow info", "", "ä", &"a".repeat(129)] {
        let error = Haproxy::new(Path::new("/s"), "web", name).expect_err(name);
        assert!(matches!(error, HaproxyError::Name(full_name) if full_name == name));
    }
    let server = Server { address: "10.0.0.1:80".parse().expect("an address"), weight: 257 };
    let heavy = haproxy().commands(&Step::Add { name: "a".to_owned(), value: server }).expect_err("too much");
    assert_eq!(heavy.to_string(), "the server sf-a cannot have the weight 257: from 0 to 256");
    let commands = haproxy().commands(&Step::Remove { name: "a;b".to_owned(), value: server });
    assert_eq!(commands.expect_err("no name").to_string().split(' ').next(), Some("\"sf-a;b\""));
}

/// A runtime socket that confirms each line of commands, except that it never responds about a server with `hang` in
/// its name, and rejects lines about a server with `bad` in its name. Returns the lines with a response.
fn start_confirming_server(path: &Path) -> Arc<parking_lot::Mutex<Vec<String>>> {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::UnixListener::bind(path).expect("a socket");
    let lines: Arc<parking_lot::Mutex<Vec<String>>> = Arc::default();
    let received = lines.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let lines = lines.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                stream.read_line(&mut line).await.expect("a line");
                if line.contains("hang") {
                    std::future::pending::<()>().await;
                }
                let response = match () {
                    () if line.contains("bad") => "Invalid address.\n",
                    () if line.starts_with("add") => "New server registered.\n",
                    () => "\n",
                };
                lines.lock().push(line.trim().to_owned());
                stream.write_all(response.as_bytes()).await.expect("a caller");
            });
        }
    });
    received
}

#[tokio::test(start_paused = true)]
async fn hanging_server_delays_no_other() {
    let path = std::env::temp_dir().join(format!("steadfast-hang-{}.sock", std::process::id()));
    let lines = start_confirming_server(&path);
    let target = Haproxy::new(&path, "web", "sf-").expect("plain names");
    let server = |weight| Server { address: "10.0.0.1:80".parse().expect("an address"), weight };
    let mut steps: Vec<_> = ["a", "hang", "heavy", "z"]
        .map(|name| Step::Add { name: name.to_owned(), value: server(if name == "heavy" { 257 } else { 1 }) })
        .into();
    steps.push(Step::Change { name: "old".to_owned(), from: server(1), to: server(0) });
    let started = Instant::now();
    let error = target.apply(&steps).await.expect_err("two servers fail");
    std::fs::remove_file(&path).expect("the socket");
    let expected = "HAProxy did not respond to `add server web/sf-hang 10.0.0.1:80 weight 1; set server web/sf-hang state ready` \
                    within 2 s; 1 other entry failed too: \"heavy\"";
    assert_eq!(error.to_string(), expected);
    assert!(started.elapsed() < STEP_RUNNER.step_timeout * 2, "{:?}", started.elapsed());
    let servers: Vec<_> = lines.lock().iter().map(|line| line[..20].to_owned()).collect();
    assert_eq!(servers.len(), 3, "{servers:?}");
    assert_eq!(servers[2], "set server web/sf-ol", "the old server was drained last");
}

#[tokio::test(start_paused = true)]
async fn rejected_address_gets_no_traffic() {
    let path = std::env::temp_dir().join(format!("steadfast-address-{}.sock", std::process::id()));
    let lines = start_confirming_server(&path);
    let target = Haproxy::new(&path, "web", "sf-").expect("plain names");
    let server = |address: &str, weight| Server { address: address.parse().expect("an address"), weight };
    let steps = ["bad", "good"].map(|name| {
        let (from, to) = (server("10.0.0.1:80", 0), server("10.0.0.2:81", 1));
        Step::Change { name: name.to_owned(), from, to }
    });
    let error = target.apply(&steps).await.expect_err("one address is rejected").to_string();
    std::fs::remove_file(&path).expect("the socket");
    assert!(error.contains("Invalid address."), "{error}");
    let mut lines = lines.lock().clone();
    lines.sort();
    let expected = [
        "set server web/sf-bad addr 10.0.0.2 port 81",
        "set server web/sf-good addr 10.0.0.2 port 81",
        "set server web/sf-good weight 1; set server web/sf-good state ready",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn rejected_address_prevents_no_drain() {
    let path = std::env::temp_dir().join(format!("steadfast-drain-{}.sock", std::process::id()));
    let lines = start_confirming_server(&path);
    let target = Haproxy::new(&path, "web", "sf-").expect("plain names");
    let server = |address: &str, weight| Server { address: address.parse().expect("an address"), weight };
    let (from, to) = (server("10.0.0.1:80", 1), server("10.0.0.2:81", 0));
    let error = target.apply(&[Step::Change { name: "bad".to_owned(), from, to }]).await.expect_err("a rejection");
    std::fs::remove_file(&path).expect("the socket");
    assert!(error.to_string().contains("Invalid address."), "{error}");
    let expected = "set server web/sf-bad addr 10.0.0.2 port 81; set server web/sf-bad weight 0; \
                    set server web/sf-bad state ready";
    assert_eq!(*lines.lock(), [expected], "the drain is in the same line");
}
