//! Selection among the addresses of a name, in virtual time.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::Connection;
use steadfast::connection::SendError;
use steadfast::environment::SharedEnvironment;
use steadfast::environment::local::{LocalEnvironment, Pipe};
use steadfast::transport::{Settings, TransportError};
use steadfast_apiserver::ApiServer;
use tokio::time::Instant;

use crate::fixture::{PODS, body_text, config, get_request, http2_settings, open_watch};

/// Behaviour of the machine at an address.
#[derive(Clone, Copy)]
enum Machine {
    /// Replica of the server, with this delay before its pipe opens.
    Replica(usize, Duration),
    RejectsConnections,
    BlackHole,
    /// Accepts and closes, like a load balancer without a backend.
    ClosesConnections,
}

const NO_DELAY: Duration = Duration::ZERO;

#[derive(Clone, Default)]
struct Network {
    machines: Arc<Mutex<BTreeMap<IpAddr, Machine>>>,
    /// Dialled addresses with their times.
    dialled: Arc<Mutex<Vec<(IpAddr, Instant)>>>,
}

impl Network {
    fn of(machines: &[(&str, Machine)]) -> Self {
        let network = Self::default();
        for (address, machine) in machines {
            network.set_machine(address, *machine);
        }
        network
    }

    fn set_machine(&self, address: &str, machine: Machine) {
        self.machines.lock().insert(address.parse().expect("an address"), machine);
    }

    fn dialled(&self) -> Vec<String> {
        self.dialled.lock().iter().map(|(address, _)| address.to_string()).collect()
    }

    fn dial_delays(&self) -> Vec<u128> {
        let dialled = self.dialled.lock();
        dialled.iter().map(|(_, at)| at.duration_since(dialled[0].1).as_millis()).collect()
    }

    fn clear_dials(&self) {
        self.dialled.lock().clear();
    }

    /// Returns a connection to `api.example`, which resolves to `addresses` in that order.
    async fn connection(&self, server: &ApiServer, addresses: &[&str]) -> Connection {
        let addresses: Vec<IpAddr> = addresses.iter().map(|name| name.parse().expect("an address")).collect();
        let (network, dialer) = (self.clone(), server.dialer());
        let environment = LocalEnvironment::new(1, move |host, _| {
            let address: IpAddr = host.parse().expect("an address");
            network.dialled.lock().push((address, Instant::now()));
            let machine = network.machines.lock()[&address];
            let dialer = dialer.clone();
            Box::pin(async move {
                match machine {
                    Machine::Replica(replica, after) => {
                        tokio::time::sleep(after).await;
                        Ok(Box::new(Pipe::new(dialer.connect(replica).await?, host)) as Box<_>)
                    }
                    Machine::RejectsConnections => Err(io::ErrorKind::ConnectionRefused.into()),
                    Machine::BlackHole => pending().await,
                    Machine::ClosesConnections => Ok(Box::new(Pipe::new(tokio::io::duplex(64).0, host)) as Box<_>),
                }
            })
        });
        let environment = environment.with_names(move |name| {
            if name == "api.example" { Ok(addresses.clone()) } else { Err(io::Error::other("no such name")) }
        });
        let environment: SharedEnvironment = Arc::new(environment);
        let mut config = config(server).await;
        config.cluster_url = "http://api.example:6443".parse().expect("a URL");
        let settings = Settings { idle_timeout: Duration::from_secs(8), ..http2_settings() };
        Connection::builder(config).environment(environment).settings(settings).build().expect("a connection")
    }
}

async fn two_replicas() -> ApiServer {
    ApiServer::builder().in_memory().replicas(2).start().await.expect("a server")
}

#[tokio::test(start_paused = true)]
async fn address_families_alternate_every_250_ms() {
    let server = two_replicas().await;
    let network = Network::of(&[
        ("fd00::1", Machine::BlackHole),
        ("fd00::2", Machine::BlackHole),
        ("10.0.0.1", Machine::BlackHole),
        ("10.0.0.2", Machine::Replica(0, NO_DELAY)),
    ]);
    let connection = network.connection(&server, &["fd00::2", "fd00::1", "10.0.0.1", "10.0.0.2"]).await;
    let started_at = Instant::now();
    body_text(&connection, get_request(PODS)).await.expect("one of the four addresses responds");
    assert!(started_at.elapsed() < Duration::from_secs(1), "{:?}", started_at.elapsed());
    let dialled = network.dialled();
    // RFC 8305, section 4: the address families alternate, starting with the preferred family.
    let six: Vec<bool> = dialled.iter().map(|address| address.contains(':')).collect();
    assert_eq!(six, [true, false, true, false][..six.len()], "{dialled:?}");
    assert_eq!(network.dial_delays(), [0, 250, 500, 750][..six.len()]);

    // An address that timed out is not tried first again.
    network.clear_dials();
    drop(open_watch(&connection).await);
    let next = network.dialled().remove(0);
    assert!(!dialled[..dialled.len() - 1].contains(&next), "{next} after {dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn rejection_skips_delay_and_slow_address_wins() {
    let server = two_replicas().await;
    let slow = Duration::from_millis(900);
    let network = Network::of(&[
        ("10.0.0.1", Machine::RejectsConnections),
        ("10.0.0.2", Machine::Replica(1, slow)),
        ("10.0.0.3", Machine::RejectsConnections),
    ]);
    let connection = network.connection(&server, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    let started_at = Instant::now();
    // A rejected attempt starts the next one at once, but does not cancel the slow one.
    body_text(&connection, get_request(PODS)).await.expect("the slow address responds");
    assert!(
        started_at.elapsed() >= slow && started_at.elapsed() < slow + Duration::from_millis(300),
        "{:?}",
        started_at.elapsed()
    );
    assert_eq!(connection.connections()[0].peer, "10.0.0.2");
}

#[tokio::test(start_paused = true)]
async fn two_addresses_are_both_used() {
    let server = two_replicas().await;
    let both = [("10.0.0.1", Machine::Replica(0, NO_DELAY)), ("10.0.0.2", Machine::Replica(1, NO_DELAY))];
    let network = Network::of(&both);
    let connection = network.connection(&server, &["10.0.0.1", "10.0.0.2"]).await;
    let watched = open_watch(&connection).await;
    body_text(&connection, get_request(PODS)).await.expect("a response");
    let mut dialled = network.dialled();
    dialled.sort();
    assert_eq!(dialled, ["10.0.0.1", "10.0.0.2"], "watches use one address, requests the other");
    drop(watched);

    // One of the two machines fails: all connections use the other. After a minute both are used again.
    for machine in [Machine::RejectsConnections, Machine::BlackHole, Machine::ClosesConnections] {
        let network = Network::of(&both);
        network.set_machine("10.0.0.1", machine);
        let connection = network.connection(&server, &["10.0.0.1", "10.0.0.2"]).await;
        for _ in 0..2 {
            while body_text(&connection, get_request(PODS)).await.is_err() {}
            tokio::time::sleep(Duration::from_secs(62)).await;
        }
        network.set_machine("10.0.0.1", both[0].1);
        network.clear_dials();
        for _ in 0..4 {
            body_text(&connection, get_request(PODS)).await.expect("a response");
            tokio::time::sleep(Duration::from_secs(62)).await;
        }
        let dialled = network.dialled();
        for address in ["10.0.0.1", "10.0.0.2"] {
            assert!(dialled.iter().any(|dialled| dialled == address), "{address}: {dialled:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recently_failed_address_is_tried_last() {
    let server = two_replicas().await;
    let network = Network::of(&[("10.0.0.1", Machine::ClosesConnections), ("10.0.0.2", Machine::Replica(1, NO_DELAY))]);
    let connection = network.connection(&server, &["10.0.0.1", "10.0.0.2"]).await;
    // An address that accepts and closes counts as failed, like one that rejects the connection.
    let mut failures = 0;
    for _ in 0..5 {
        failures += usize::from(body_text(&connection, get_request(PODS)).await.is_err());
        // Long enough to close the idle connection.
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let dialled = network.dialled();
    assert_eq!((failures, dialled.len()), (1, 5), "the closing address must be tried only once: {dialled:?}");
    assert_eq!(dialled.iter().filter(|address| *address == "10.0.0.1").count(), 1, "{dialled:?}");
}

#[tokio::test(start_paused = true)]
async fn error_names_every_failed_address() {
    let server = two_replicas().await;
    let network = Network::of(&[("fd00::1", Machine::BlackHole), ("10.0.0.1", Machine::RejectsConnections)]);
    let connection = network.connection(&server, &["fd00::1", "10.0.0.1"]).await;
    let started_at = Instant::now();
    let error = body_text(&connection, get_request(PODS)).await.expect_err("no address accepts a connection");
    assert!(matches!(error, SendError::Transport(TransportError::Dial { .. })), "{error:?}");
    assert_eq!(started_at.elapsed().as_secs(), 5);
    let message = error.to_string();
    assert!(message.contains("cannot connect to api.example:6443: 10.0.0.1:6443: connection refused"), "{message}");
    assert!(message.contains("[fd00::1]:6443: no response within 5 s"), "{message}");

    let mut other = config(&server).await;
    other.cluster_url = "http://nowhere.example:6443".parse().expect("a URL");
    let none =
        LocalEnvironment::new(1, |_, _| Box::pin(pending())).with_names(|_| Err(io::Error::other("no such name")));
    let connection = Connection::builder(other).environment(Arc::new(none)).build().expect("a connection");
    let error = body_text(&connection, get_request(PODS)).await.expect_err("the name has no address");
    assert!(error.to_string().contains("cannot resolve \"nowhere.example\""), "{error}");
}
