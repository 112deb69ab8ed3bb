//! Tests with a real kernel: a load balancer between a client and two backends, each in its own network. The
//! assertions check the responses to real connections.
//!
//! Requires root, `ip` and `nft`, and is skipped without them. Client and backends are copies of this program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, io, process, thread};

use steadfast_targets::nftables::{Backend, Nftables, TransportProtocol};
use steadfast_targets::{DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, Target};
use tokio::time::timeout;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Environment variable that names the role of a copy of this program.
const ROLE_VARIABLE: &str = "STEADFAST_NFTABLES_ROLE";

const FRONT_ADDRESS: &str = "10.99.0.1:80";
const BACKEND_A: &str = "10.78.0.2:8001";
const BACKEND_B: &str = "10.78.0.3:8002";

/// Entry point of a copy of this program in its network; not a test.
#[test]
fn guest_process() {
    match env::var(ROLE_VARIABLE).as_deref() {
        Ok("backends") => backends().expect("backends"),
        Ok("client") => client().expect("a client"),
        role => assert!(role.is_err(), "{role:?}"),
    }
}

/// Runs both backends. Each responds to a received byte or datagram with its own name.
fn backends() -> io::Result<()> {
    for (address, name) in [(BACKEND_A, b"a"), (BACKEND_B, b"b")] {
        let listener = TcpListener::bind(address)?;
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                thread::spawn(move || {
                    while stream.read_exact(&mut [0]).is_ok() {
                        if stream.write_all(name).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
    for (address, name) in [(BACKEND_A, b"a"), (BACKEND_B, b"b")] {
        let socket = UdpSocket::bind(address)?;
        thread::spawn(move || {
            while let Ok((_, client)) = socket.recv_from(&mut [0; 16]) {
                let _ = socket.send_to(name, client);
            }
        });
    }
    println!("ready");
    // Runs until the parent process exits.
    io::copy(&mut stdin(), &mut io::sink()).map(drop)
}

/// Sends the requested number of requests, and prints the responding servers.
fn client() -> io::Result<()> {
    fn send_request(stream: &mut TcpStream) -> io::Result<char> {
        let mut name = [0];
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"?")?;
        stream.read_exact(&mut name)?;
        Ok(char::from(name[0]))
    }
    let address: SocketAddr = FRONT_ADDRESS.parse().expect("an address");
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1));
    let mut held_stream = None;
    println!("ready");
    for line in stdin().lines() {
        let message = match &*line? {
            "ask" => connect().and_then(|mut stream| send_request(&mut stream)),
            "hold" => connect().and_then(|mut stream| {
                let name = send_request(&mut stream);
                held_stream = Some(stream);
                name
            }),
            // Each request uses a new local port.
            "datagram" => UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
                let mut name = [0];
                socket.set_read_timeout(Some(Duration::from_millis(500)))?;
                socket.send_to(b"?", address)?;
                socket.recv(&mut name)?;
                Ok(char::from(name[0]))
            }),
            "again" => held_stream.as_mut().map_or(Err(io::ErrorKind::NotConnected.into()), send_request),
            other => panic!("{other}"),
        };
        println!("answer {}", message.unwrap_or('-'));
    }
    Ok(())
}

/// Copy of this program in one of the networks.
struct ChildProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    fn start(network: &str, role: &str) -> Result<Self> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", network]).arg(env::current_exe()?);
        command.args(["--exact", "nftables::guest_process", "--nocapture"]).env(ROLE_VARIABLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("a process without pipes")?;
        let mut process = Self { child, input, output: BufReader::new(output) };
        process.read_until("ready")?;
        Ok(process)
    }

    /// Reads until a line contains `prefix`, after possible output of the test harness. Returns the rest of the line.
    fn read_until(&mut self, prefix: &str) -> Result<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if let Some((_, rest)) = line.split_once(prefix) {
                return Ok(rest.trim().to_owned());
            }
            line.clear();
        }
        Err(format!("the process exited without {prefix}").into())
    }

    fn request(&mut self, command: &str) -> Result<String> {
        writeln!(self.input, "{command}")?;
        self.read_until("answer")
    }

    /// Counts the responses of each backend in `times` requests.
    fn count_responses(&mut self, times: usize) -> Result<BTreeMap<String, usize>> {
        self.responses("ask", times)
    }

    /// Sends `command` several times, and returns the number of responses by backend.
    fn responses(&mut self, command: &str, times: usize) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for _ in 0..times {
            *counts.entry(self.request(command)?).or_default() += 1;
        }
        Ok(counts)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three connected networks. Removed on drop, with all their interfaces.
struct Networks([String; 3]);

impl Networks {
    /// Returns `None`, and prints the reason, if the networks cannot be created.
    fn start(number: u32) -> Result<Option<Self>> {
        let tools = [("ip", "-V"), ("nft", "-v")];
        let missing = tools.iter().find(|(tool, argument)| {
            !Command::new(tool).arg(argument).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        });
        let networks =
            Self(["client", "balancer", "backends"].map(|name| format!("steadfast-{name}-{number}-{}", process::id())));
        let reason = match missing {
            Some((tool, _)) => Some(format!("there is no {tool} on the path")),
            None if !networks.create(number) => Some("this user may make no networks".to_owned()),
            None => None,
        };
        let Some(reason) = reason else { return Ok(Some(networks)) };
        if env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
            return Err(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}").into());
        }
        // Written to the terminal, because the harness captures the output of passing tests.
        writeln!(io::stderr(), "skipped: {reason}")?;
        Ok(None)
    }

    fn create(&self, number: u32) -> bool {
        let [client, balancer, backends] = &self.0;
        let number = format!("{}{number}", process::id() % 100_000);
        let all = format!(
            "netns add {client}\nnetns add {balancer}\nnetns add {backends}\n\
             link add c{number} netns {client} type veth peer name lc{number} netns {balancer}\n\
             link add b{number} netns {backends} type veth peer name lb{number} netns {balancer}\n\
             -n {client} addr add 10.79.0.2/24 dev c{number}\n-n {client} link set c{number} up\n\
             -n {client} route add default via 10.79.0.1\n\
             -n {balancer} addr add 10.79.0.1/24 dev lc{number}\n-n {balancer} link set lc{number} up\n\
             -n {balancer} addr add 10.78.0.1/24 dev lb{number}\n-n {balancer} link set lb{number} up\n\
             -n {balancer} link set lo up\n-n {balancer} addr add 10.99.0.1/32 dev lo\n\
             -n {backends} addr add 10.78.0.2/24 dev b{number}\n-n {backends} addr add 10.78.0.3/24 dev b{number}\n\
             -n {backends} link set b{number} up\n"
        );
        // Responses to the client pass through the balancer, which must replace the source address with its own.
        let routed = format!("-n {client} link set lo up\n-n {backends} route add default via 10.78.0.1\n");
        let forward = ["netns", "exec", balancer, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"];
        all.lines().chain(routed.lines()).map(|line| line.split(' ').collect()).chain([forward.to_vec()]).all(|line| {
            let status = Command::new("ip").args(line).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        })
    }

    fn nft(&self) -> [&str; 5] {
        ["ip", "netns", "exec", &self.0[1], "nft"]
    }

    fn target(&self) -> Result<Nftables> {
        Ok(Nftables::new("web", FRONT_ADDRESS.parse()?)?.with_command(self.nft()))
    }

    fn run_nft(&self, arguments: &[&str]) -> Result<String> {
        let [program, rest @ ..] = self.nft();
        let output = Command::new(program).args(rest).args(arguments).output()?;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for network in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", network]).stderr(Stdio::null()).status();
        }
    }
}

fn desired(all: &[(&str, &str, u16)]) -> DesiredState<Backend> {
    let entry = |(name, address, weight): &(&str, &str, u16)| {
        ((*name).to_owned(), Backend { address: address.parse().expect("an address"), weight: *weight })
    };
    DesiredState::new(all.iter().map(entry).collect())
}

async fn wait_until(mirror: &Mirror<Backend>, condition: impl FnMut(&MirrorStatus<Backend>) -> bool) -> Result {
    let mut status = mirror.status();
    let waited = timeout(TIMEOUT, status.wait_for(condition)).await;
    waited.map_err(|_| format!("not within {TIMEOUT:?}: {:?}", mirror.status().borrow()))??;
    Ok(())
}

fn expected_counts(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
    all.iter().map(|(name, times)| ((*name).to_owned(), *times)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_follow_weights_connections_stay() -> Result {
    let Some(networks) = Networks::start(0)? else { return Ok(()) };
    let (_backends, mut client) =
        (ChildProcess::start(&networks.0[2], "backends")?, ChildProcess::start(&networks.0[0], "client")?);
    networks.run_nft(&["add", "table", "ip", "somebody_elses"])?;
    let limits = Limits { share: 1.0, ..Limits::default() };
    let settings =
        MirrorSettings { limits, allow_empty: true, compare: Duration::from_millis(300), ..MirrorSettings::default() };
    let mirror = Mirror::start("web", networks.target()?, settings, MirrorMemory::volatile());
    assert_eq!(client.count_responses(1)?, expected_counts(&[("-", 1)]));

    mirror.set_desired(desired(&[("one", BACKEND_A, 10), ("two", BACKEND_B, 10)]));
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;
    assert_eq!(client.count_responses(6)?, expected_counts(&[("a", 3), ("b", 3)]));
    mirror.set_desired(desired(&[("one", BACKEND_A, 10), ("two", BACKEND_B, 30)]));
    wait_until(&mirror, |status| status.settled && status.applied.len() == 1).await?;
    assert_eq!(client.count_responses(8)?, expected_counts(&[("a", 2), ("b", 6)]));

    let kept = client.request("hold")?;
    let (stays, other) = if kept == "a" { (("two", BACKEND_B, 1), "b") } else { (("one", BACKEND_A, 1), "a") };
    mirror.set_desired(desired(&[stays]));
    wait_until(&mirror, |status| status.settled && status.entries == 1).await?;
    assert_eq!(client.count_responses(5)?, expected_counts(&[(other, 5)]));
    assert_eq!(client.request("again")?, kept, "an existing connection keeps its backend");

    // Another client removes all entries, and adds an unwanted entry.
    networks.run_nft(&["flush", "chain", "ip", "steadfast_web", "balance"])?;
    let reads = mirror.status().borrow().reads;
    wait_until(&mirror, |status| status.settled && status.reads > reads + 3).await?;
    assert_eq!(client.count_responses(5)?, expected_counts(&[(other, 5)]));
    let stranger = if other == "a" { BACKEND_B } else { BACKEND_A }.replace(':', " . ");
    let rule = format!("ip daddr 10.99.0.1 tcp dport 80 dnat to numgen inc mod 1 map {{ 0 : {stranger} }}");
    networks.run_nft(&["insert", "rule", "ip", "steadfast_web", "balance", &rule])?;
    let reads = mirror.status().borrow().reads;
    wait_until(&mirror, |status| status.settled && status.reads > reads + 3).await?;
    assert_eq!(client.count_responses(5)?, expected_counts(&[(other, 5)]));

    mirror.set_desired(desired(&[]));
    wait_until(&mirror, |status| status.settled && status.entries == 0).await?;
    assert_eq!(client.count_responses(1)?, expected_counts(&[("-", 1)]));
    assert!(networks.run_nft(&["list", "tables"])?.contains("somebody_elses"), "foreign tables stay unchanged");
    mirror.stop().await;
    Ok(())
}

#[tokio::test]
async fn ipv6_table_round_trips() -> Result {
    let Some(networks) = Networks::start(1)? else { return Ok(()) };
    let target = Nftables::new("six", "[fd00::1]:443".parse()?)?.with_command(networks.nft());
    let own = desired(&[("a", "[fd00::a]:8443", 2), ("b", "[fd00::b]:8443", 1), ("c", "[fd00::c]:8443", 0)]).entries;
    let steps: Vec<_> =
        own.iter().map(|(name, value)| steadfast_targets::Step::Add { name: name.clone(), value: *value }).collect();
    assert!(target.read().await?.own.is_empty());
    target.apply(&steps).await?;
    assert_eq!(target.read().await?.own, own);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_reach_udp_backends() -> Result {
    let Some(networks) = Networks::start(2)? else { return Ok(()) };
    let (_backends, mut client) =
        (ChildProcess::start(&networks.0[2], "backends")?, ChildProcess::start(&networks.0[0], "client")?);
    let limits = Limits { share: 1.0, ..Limits::default() };
    let settings =
        MirrorSettings { limits, allow_empty: true, compare: Duration::from_millis(300), ..MirrorSettings::default() };
    let target = networks.target()?.protocol(TransportProtocol::Udp);
    let mirror = Mirror::start("web", target.clone(), settings, MirrorMemory::volatile());
    mirror.set_desired(desired(&[("one", BACKEND_A, 10), ("two", BACKEND_B, 30)]));
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;
    assert_eq!(client.responses("datagram", 8)?, expected_counts(&[("a", 2), ("b", 6)]));
    assert_eq!(client.count_responses(1)?, expected_counts(&[("-", 1)]), "TCP is not forwarded");
    mirror.set_desired(desired(&[("two", BACKEND_B, 30)]));
    wait_until(&mirror, |status| status.settled && status.entries == 1).await?;
    assert_eq!(client.responses("datagram", 4)?, expected_counts(&[("b", 4)]));
    mirror.stop().await;

    // The table forwards the other protocol, so the mirror writes the table again.
    let found = networks.target()?.read().await?.own;
    assert_ne!(found["two"], Backend { address: BACKEND_B.parse()?, weight: 30 });
    assert_eq!(target.read().await?.own["two"], Backend { address: BACKEND_B.parse()?, weight: 30 });

    // A foreign rule among the entries does not prevent reads.
    networks.run_nft(&["add", "rule", "ip", "steadfast_web", "entries", "counter", "comment", "\"what is this\""])?;
    let (name, to) = ("two".to_owned(), Backend { address: BACKEND_B.parse()?, weight: 30 });
    let from = target.read().await?.own["two"];
    assert_ne!(from, to);
    target.apply(&[steadfast_targets::Step::Change { name, from, to }]).await?;
    assert_eq!(target.read().await?.own["two"], to);
    assert!(!networks.run_nft(&["list", "ruleset"])?.contains("what is this"));
    Ok(())
}
