use super::*;

/// As 2.6 answers.
const STATE: &str = "\
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
fn the_state_of_servers_is_read_by_the_names_of_its_columns() {
    let read = answers::servers(STATE).expect("a table");
    let told: Vec<_> = read
        .iter()
        .map(|server| format!("{} {} {} {}", server.name, server.address, server.weight, server.is_ready))
        .collect();
    assert_eq!(told, ["other 127.0.0.1:1 0 true", "sf-a 10.0.0.1:8001 10 true", "sf-b [fd00::1]:8002 7 false"]);
    let (head, rest) = STATE.split_once("srv_addr srv_op_state").expect("two columns");
    let swapped = format!("{head}srv_op_state srv_addr{rest}").replace("10.0.0.1 2", "2 10.0.0.1");
    assert_eq!(answers::servers(&swapped).expect("a table")[1].address, "10.0.0.1:8001".parse().expect("an address"));
}

#[test]
fn what_is_no_table_is_no_empty_one() {
    assert_eq!(answers::servers("Can't find backend.\n"), Err(answers::Unexpected::Refused));
    assert_eq!(answers::servers(""), Err(answers::Unexpected::Refused));
    let cut = STATE.replace(" 10 10 0 1", " ten 10 0 1");
    assert!(matches!(answers::servers(&cut), Err(answers::Unexpected::Form(why)) if why.contains("srv_uweight")));
}

#[test]
fn the_sessions_of_servers_are_read() {
    let answer = "# pxname,svname,qcur,qmax,scur,smax,\nweb,other,0,0,0,0,\nweb,sf-a,0,0,2,7,\n\n";
    let expected = [("other".to_owned(), 0), ("sf-a".to_owned(), 2)];
    assert_eq!(answers::used(answer), Ok(BTreeMap::from(expected)));
    assert_eq!(answers::used("No such proxy.\n"), Err(answers::Unexpected::Refused));
}

#[test]
fn an_answer_says_whether_a_command_is_done() {
    for (command, answer, done) in [
        ("add server b/a 127.0.0.1:1 weight 1", "New server registered.\n\n", true),
        ("add server b/a 127.0.0.1:1 weight 1", "Already exists a server with the same name in backend.\n", false),
        ("add server b/a 127.0.0.1:1 weight 1", "", false),
        ("del server b/a", "Server deleted.\n", true),
        ("del server b/a", "Only servers in maintenance mode can be deleted.\n", false),
        ("set server b/a weight 1", "\n", true),
        ("set server b/a weight 1", "No such server.\n", false),
        ("set server b/a addr 127.0.0.2 port 2", "IP changed from '127.0.0.1' to '127.0.0.2', port changed …\n", true),
        ("set server b/a addr 127.0.0.2 port 2", "no need to change the addr, no need to change the port\n", true),
        ("set server b/a state ready", "Permission denied\n", false),
    ] {
        assert_eq!(answers::is_done(command, answer), done, "`{command}`: {answer}");
    }
}

#[test]
fn a_step_is_described_in_words_that_can_be_run() {
    let server = Server { address: "10.0.0.1:80".parse().expect("an address"), weight: 5 };
    let add = Step::Add { name: "a".to_owned(), value: server };
    let to = Server { weight: 0, ..server };
    let drain = Step::Change { name: "a".to_owned(), from: server, to };
    let remove = Step::Remove { name: "a".to_owned(), value: to };
    let found = Found { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
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
fn a_name_that_would_be_a_second_command_is_none() {
    for name in ["a b", "a;b", "a\nshow info", "", "ä", &"a".repeat(129)] {
        let error = Haproxy::new(Path::new("/s"), "web", name).expect_err(name);
        assert!(matches!(error, HaproxyError::Name(named) if named == name));
    }
    let server = Server { address: "10.0.0.1:80".parse().expect("an address"), weight: 257 };
    let heavy = haproxy().commands(&Step::Add { name: "a".to_owned(), value: server }).expect_err("too much");
    assert_eq!(heavy.to_string(), "the server sf-a cannot have the weight 257: from 0 to 256");
    let commands = haproxy().commands(&Step::Remove { name: "a;b".to_owned(), value: server });
    assert_eq!(commands.expect_err("no name").to_string().split(' ').next(), Some("\"sf-a;b\""));
}
