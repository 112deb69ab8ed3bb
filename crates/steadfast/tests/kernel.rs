//! Kernel tests in real time: a peer that vanished without FIN or RST is detected within 15 s (R1).
//!
//! The peer runs in a network namespace, connected by a virtual cable. After a cut, both ends send their packets to a
//! machine that does not exist, and neither kernel is notified. The tests require root and `ip`, and are skipped if
//! either is missing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use steadfast::Connection;
use steadfast::environment::Environment;
use steadfast::environment::threads::ThreadedEnvironment;
use steadfast::transport::{Protocol, ResponseBody, TransportError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bound of R1. The assertions are about the contract, not about the speed of the machine.
const BOUND: Duration = Duration::from_secs(15);

/// An end before this time has another cause: keepalive has not sent a probe yet.
const TOO_EARLY: Duration = Duration::from_secs(5);

/// Environment variable that starts a copy of this program as the peer. The value is the peer's address.
const PEER: &str = "STEADFAST_KERNEL_TEST_PEER";

/// Line printed by the peer once it accepts connections.
const LISTENING: &str = "the peer is listening";

/// Event sent by the peer on a watch before it falls silent.
const EVENT: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}\n";

/// Unused hardware address: packets to it vanish.
const UNUSED_HARDWARE_ADDRESS: &str = "02:00:00:00:00:01";

#[test]
fn keepalive_detects_vanished_peer_of_idle_stream() {
    in_a_network(0, "keepalive_detects_vanished_peer_of_idle_stream", async |network| {
        let mut ordinary = TcpStream::connect(network.peer).await.expect("a connection");
        let (connection, mut body) = watch(network.peer).await;
        network.cut();
        let started_at = Instant::now();
        let error = timeout(2 * BOUND, chunk(&mut body))
            .await
            .expect("the connection ends")
            .expect_err("an error instead of data");
        let noticed = started_at.elapsed();
        println!("an idle stream whose peer vanished: {error}, after {noticed:.1?}");
        assert!(matches!(error, TransportError::ConnectionLost { .. }), "{error:?}");
        assert!((TOO_EARLY..=BOUND).contains(&noticed), "{noticed:?}");
        assert!(connection.connections().is_empty(), "{:?}", connection.connections());
        nothing_is_noticed_on(&mut ordinary).await;
    });
}

#[test]
fn tcp_user_timeout_detects_vanished_peer() {
    in_a_network(1, "tcp_user_timeout_detects_vanished_peer", async |network| {
        let threads = ThreadedEnvironment::new().expect("threads");
        let peer = network.peer;
        let mut ordinary = TcpStream::connect(peer).await.expect("a connection");
        let mut socket = threads.dial(peer).await.expect("a connection");
        network.cut();
        let started_at = Instant::now();
        socket.write_all(b"GET ").await.expect("the kernel accepts the bytes");
        ordinary.write_all(b"GET ").await.expect("the kernel accepts the bytes");
        // Linux sends no keepalive probes while data is unacknowledged, so only `TCP_USER_TIMEOUT` applies (tcp(7)).
        let response = timeout(2 * BOUND, socket.read_u8()).await.expect("the connection ends");
        let noticed = started_at.elapsed();
        let error = response.expect_err("an error instead of data");
        println!("unacknowledged bytes: {error}, after {noticed:.1?}");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!((TOO_EARLY..=BOUND).contains(&noticed), "{noticed:?}");
        nothing_is_noticed_on(&mut ordinary).await;
    });
}

#[test]
fn upgraded_connection_detects_vanished_peer() {
    let name = "upgraded_connection_detects_vanished_peer";
    in_a_network(3, name, async |network| {
        let url = format!("http://{}", network.peer).parse().expect("a URL");
        let connection = Connection::new(kube::Config::new(url)).expect("a connection");
        let request = Request::post("/api/v1/namespaces/default/pods/a/exec?command=cat&stdin=true")
            .header("connection", "upgrade")
            .header("upgrade", "SPDY/3.1")
            .body(kube::client::Body::empty())
            .expect("a request");
        let response = connection.send(request).await.expect("a response");
        assert_eq!(response.status(), 101);
        let mut stream = TokioIo::new(hyper::upgrade::on(response).await.expect("an upgraded stream"));
        network.cut();
        let started_at = Instant::now();
        stream.write_all(b"something").await.expect("the kernel accepts the bytes");
        let error = timeout(4 * BOUND, stream.read_u8())
            .await
            .expect("the connection ends")
            .expect_err("an error instead of data");
        let noticed = started_at.elapsed();
        println!("an upgraded connection whose peer vanished: {error}, after {noticed:.1?}");
        assert!(error.to_string().contains("does not respond"), "{error}");
        assert!((TOO_EARLY..=2 * BOUND + Duration::from_secs(5)).contains(&noticed), "{noticed:?}");
    });
}

#[test]
fn connection_to_silent_peer_is_kept() {
    in_a_network(2, "connection_to_silent_peer_is_kept", async |network| {
        let (connection, mut body) = watch(network.peer).await;
        timeout(BOUND + Duration::from_millis(500), chunk(&mut body)).await.expect_err("neither an end nor data");
        assert_eq!(connection.connections().len(), 1);
    });
}

/// Basis of a [`Fence`](steadfast::transport::Fence): the program does nothing after its write, as if it were
/// suspended.
#[test]
fn limited_bytes_are_not_sent_after_a_cut() {
    let name = "limited_bytes_are_not_sent_after_a_cut";
    in_a_network(4, name, async |network| {
        let threads = ThreadedEnvironment::new().expect("threads");
        let limit = Duration::from_millis(2500);
        let mut ordinary = TcpStream::connect(network.peer).await.expect("a connection");
        let mut limited = threads.dial(network.peer).await.expect("a connection");
        limited.limit_lateness(limit);
        network.cut();
        ordinary.write_all(b"GET /late HTTP/1.1\r\n\r\n").await.expect("the kernel accepts the bytes");
        limited.write_all(b"GET /late HTTP/1.1\r\n\r\n").await.expect("the kernel accepts the bytes");
        // Twice the lateness, and shorter than a default kernel retransmits.
        tokio::time::sleep(2 * limit).await;
        network.mend();
        let late =
            timeout(2 * BOUND, ordinary.read_u8()).await.expect("the retransmitted bytes arrive").expect("a response");
        assert_eq!(late, b'H');
        let error = timeout(BOUND, limited.read_u8()).await.expect("the connection ends").expect_err("a timeout");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "the limited socket must time out during the cut");
    });
}

/// Returns an HTTP/1.1 watch after its head and first event.
async fn watch(peer: SocketAddr) -> (Connection, ResponseBody) {
    let url = format!("http://{peer}").parse().expect("a URL");
    let connection = Connection::new(kube::Config::new(url)).expect("a connection");
    let request = Request::get("/api/v1/pods?watch=true").body(kube::client::Body::empty()).expect("a request");
    let response = connection.send(request).await.expect("a response");
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert_eq!(chunk(&mut body).await.expect("an event"), EVENT);
    assert_eq!(connection.connections()[0].protocol, Some(Protocol::Http1));
    (connection, body)
}

async fn chunk(body: &mut ResponseBody) -> Result<Bytes, TransportError> {
    let frame = body.frame().await.expect("an error instead of a clean end")?;
    Ok(frame.into_data().expect("data"))
}

/// Asserts that a socket with default settings has not detected the loss. The detection is therefore due to this
/// crate's settings.
async fn nothing_is_noticed_on(ordinary: &mut TcpStream) {
    timeout(Duration::from_millis(50), ordinary.read_u8()).await.expect_err("a socket without settings still waits");
}

/// Runs `test` with a peer in a separate network, or acts as that peer.
///
/// The peer is a copy of this program, started in the namespace with only the test `name`.
fn in_a_network<F>(number: u32, name: &str, test: F)
where
    F: AsyncFnOnce(&Network),
{
    if let Ok(address) = env::var(PEER) {
        return run_peer(address.parse().expect("an address"));
    }
    let network = match Network::new(number, name) {
        Ok(network) => network,
        Err(reason) => return skip(&reason),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test(&network));
}

fn skip(reason: &str) {
    let required = env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1");
    assert!(!required, "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: {reason}");
    // Bypasses the capture of passing tests, so that a skip is visible.
    writeln!(io::stderr(), "skipped: {reason}").expect("a standard error");
}

/// A namespace, a cable to it, and its peer, all removed on drop.
struct Network {
    namespace: String,
    host_link: String,
    peer_link: String,
    host: Ipv4Addr,
    peer: SocketAddr,
    process: Option<Child>,
}

impl Network {
    /// Creates the network. An error is a reason to skip: this machine does not permit network namespaces.
    fn new(number: u32, name: &str) -> Result<Self, String> {
        let id = process::id();
        let namespace = format!("sf{id}n{number}");
        // Four addresses for each network, of 65,536 in total.
        let subnet = u32::from(Ipv4Addr::new(10, 199, 0, 0)) + (id * 4 + number) % (1 << 14) * 4;
        let (host, peer) = (Ipv4Addr::from(subnet + 1), Ipv4Addr::from(subnet + 2));
        ip(&format!("netns add {namespace}"))?;
        let mut network = Self {
            host_link: format!("sf{id}h{number}"),
            peer_link: format!("sf{id}p{number}"),
            namespace,
            host,
            peer: SocketAddr::from((peer, 6443)),
            process: None,
        };
        let Self { namespace, host_link, peer_link, .. } = &network;
        ip(&format!("link add {host_link} type veth peer name {peer_link} netns {namespace}"))?;
        ip(&format!("address add {host}/30 dev {host_link}"))?;
        ip(&format!("link set {host_link} up"))?;
        ip(&format!("-n {namespace} address add {peer}/30 dev {peer_link}"))?;
        ip(&format!("-n {namespace} link set {peer_link} up"))?;
        network.start_the_peer(name);
        Ok(network)
    }

    fn start_the_peer(&mut self, name: &str) {
        let mut process = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .arg(env::current_exe().expect("a program"))
            .args(["--exact", name, "--nocapture"])
            .env(PEER, self.peer.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a peer");
        let output = process.stdout.take().expect("its output");
        self.process = Some(process);
        let mut lines = BufReader::new(output).lines();
        assert!(lines.any(|line| line.expect("a line").contains(LISTENING)), "the peer does not listen");
    }

    /// Makes the packets of both ends vanish without a link-down event.
    fn cut(&self) {
        let Self { namespace, host_link, peer_link, host, .. } = self;
        let peer = self.peer.ip();
        let unreachable_entry = format!("lladdr {UNUSED_HARDWARE_ADDRESS} nud permanent");
        ip(&format!("neigh replace {peer} dev {host_link} {unreachable_entry}")).expect("a cut cable");
        ip(&format!("-n {namespace} neigh replace {host} dev {peer_link} {unreachable_entry}")).expect("a cut cable");
    }

    /// Lets packets arrive again.
    fn mend(&self) {
        let Self { namespace, host_link, peer_link, host, .. } = self;
        ip(&format!("neigh delete {} dev {host_link}", self.peer.ip())).expect("a cable");
        ip(&format!("-n {namespace} neigh delete {host} dev {peer_link}")).expect("a cable");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
        // After a failed setup there is no cable. Removing the namespace alone would remove the cable only later.
        drop(ip(&format!("link delete {}", self.host_link)));
        if let Err(error) = ip(&format!("netns delete {}", self.namespace)) {
            eprintln!("a namespace is left: {error}");
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| format!("no ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Responds to each request on `address` with an event and silence, until the parent process exits.
fn run_peer(address: SocketAddr) {
    let listener = TcpListener::bind(address).expect("an address of this namespace");
    println!("{LISTENING}");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || respond(stream.expect("a connection")));
        }
    });
    drop(io::stdin().read_to_end(&mut Vec::new()));
}

fn respond(mut stream: std::net::TcpStream) {
    let mut request = BufReader::new(stream.try_clone().expect("a socket"));
    let mut line = String::new();
    let mut upgrade = false;
    while request.read_line(&mut line).is_ok_and(|read| read > 0) {
        upgrade |= line.to_lowercase().starts_with("upgrade:");
        if line == "\r\n" && upgrade {
            let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
            stream.write_all(head.as_bytes()).expect("a response");
        } else if line == "\r\n" {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            write!(stream, "{head}{:x}\r\n{EVENT}\r\n", EVENT.len()).expect("a response");
        }
        line.clear();
    }
}
