//! Tests with a real HAProxy. The assertions check the responses to real connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use steadfast_targets::haproxy::{Haproxy, HaproxyError, Server};
use steadfast_targets::{
    ActualState, DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, SkipReason, Step, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the path of HAProxy, or `None` after printing that the test is skipped.
fn find_haproxy() -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|folder| folder.join("haproxy")).find(|path| path.is_file());
    if found.is_none() {
        if std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
            return Err("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no haproxy on the path".into());
        }
        // Written to the terminal, because the harness captures the output of passing tests.
        std::io::Write::write_all(&mut std::io::stderr(), b"skipped: there is no haproxy on the path\n")?;
    }
    Ok(found)
}

/// HAProxy with one backend, `web`, and a foreign server without traffic. Killed on drop.
struct RunningHaproxy {
    program: PathBuf,
    folder: PathBuf,
    front_address: SocketAddr,
    process: Child,
}

impl RunningHaproxy {
    async fn start(program: PathBuf, name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("steadfast-haproxy-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let front_address = StdListener::bind("127.0.0.1:0")?.local_addr()?;
        let text = format!(
            "global\n  stats socket {}/admin.sock mode 600 level admin\ndefaults\n  mode tcp\n  timeout connect 2s\n  \
             timeout client 60s\n  timeout server 60s\n  retries 3\n  \
             option redispatch\nfrontend all\n  bind {front_address}\n  default_backend web\nbackend web\n  \
             balance roundrobin\n  server other 127.0.0.1:9 weight 0\n",
            folder.display()
        );
        std::fs::write(folder.join("haproxy.cfg"), text)?;
        let process = Self::spawn(&program, &folder)?;
        let running = Self { program, folder, front_address, process };
        running.wait_until_ready().await?;
        Ok(running)
    }

    fn spawn(program: &Path, folder: &Path) -> Result<Child> {
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(folder.join("haproxy.cfg")).stderr(Stdio::null()).stdout(Stdio::null());
        Ok(command.spawn()?)
    }

    async fn wait_until_ready(&self) -> Result {
        let target = self.target()?;
        let ready = async {
            while target.read().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        Ok(timeout(TIMEOUT, ready).await?)
    }

    /// Kills and restarts HAProxy, which loses all servers that were added at run time.
    async fn restart(&mut self) -> Result {
        self.process.kill()?;
        self.process.wait()?;
        self.process = Self::spawn(&self.program, &self.folder)?;
        self.wait_until_ready().await
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    fn target(&self) -> std::result::Result<Haproxy, HaproxyError> {
        Haproxy::new(&self.socket(), "web", "sf-")
    }

    fn mirror(&self) -> Result<Mirror<Server>> {
        let limits = Limits { share: 1.0, ..Limits::default() };
        let settings = MirrorSettings {
            limits,
            drain: Duration::from_secs(10 * 60),
            compare: Duration::from_millis(500),
            ..MirrorSettings::default()
        };
        Ok(Mirror::start("web", self.target()?, settings, MirrorMemory::volatile()))
    }

    /// Sends `requests` requests and counts the responses by server. Requests without a response count as `nobody`.
    async fn count_responses(&self, requests: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..requests {
            let name = async {
                let mut stream = TcpStream::connect(self.front_address).await?;
                stream.write_all(b"?").await?;
                let mut name = String::new();
                stream.read_to_string(&mut name).await?;
                std::io::Result::Ok(name)
            };
            let name = name.await.unwrap_or_default();
            *counts.entry(if name.is_empty() { "nobody".to_owned() } else { name }).or_default() += 1;
        }
        counts
    }
}

impl Drop for RunningHaproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts a server that responds to each received byte with `name`. It closes the connection after any byte except `!`.
async fn start_backend(name: &'static str) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    stream.write_all(name.as_bytes()).await?;
                    if byte != b'!' {
                        break;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    });
    Ok(address)
}

fn desired(servers: &[(&str, SocketAddr, u16)]) -> DesiredState<Server> {
    let entry = |&(name, address, weight): &(&str, SocketAddr, u16)| (name.to_owned(), Server { address, weight });
    DesiredState::new(servers.iter().map(entry).collect())
}

async fn wait_until(
    mirror: &Mirror<Server>,
    condition: impl FnMut(&MirrorStatus<Server>) -> bool,
) -> Result<MirrorStatus<Server>> {
    let mut status = mirror.status();
    let waited = timeout(TIMEOUT, status.wait_for(condition)).await;
    Ok(waited.map_err(|_| format!("not within {TIMEOUT:?}: {:?}", mirror.status().borrow()))??.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_follows_drain_and_restart() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let mut running = RunningHaproxy::start(program, "traffic").await?;
    let (a, b, c) = (start_backend("a").await?, start_backend("b").await?, start_backend("c").await?);
    let mirror = running.mirror()?;
    assert_eq!(running.count_responses(3).await, BTreeMap::from([("nobody".to_owned(), 3)]));

    mirror.set_desired(desired(&[("one", a, 10), ("two", b, 10)]));
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;
    assert_eq!(running.count_responses(10).await, BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 5)]));

    // A server is drained during use: new connections avoid the server, and existing connections stay open.
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(running.front_address).await?;
        stream.write_all(b"!").await?;
        let mut name = [0];
        stream.read_exact(&mut name).await?;
        held.push((name[0], stream));
    }
    mirror.set_desired(desired(&[("two", b, 10), ("three", c, 30)]));
    let status =
        wait_until(&mirror, |status| status.settled && status.skipped.get("one") == Some(&SkipReason::InUse)).await?;
    assert_eq!(status.entries, 3);
    assert_eq!(running.count_responses(8).await, BTreeMap::from([("b".to_owned(), 2), ("c".to_owned(), 6)]));
    let (_, mut at_a) =
        held.remove(held.iter().position(|(name, _)| *name == b'a').ok_or("one of two connections is at server a")?);
    at_a.write_all(b"!").await?;
    assert_eq!(at_a.read_u8().await?, b'a', "an open connection keeps its server");
    drop(at_a);
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;

    // A server gets another address.
    mirror.set_desired(desired(&[("two", a, 10), ("three", c, 10)]));
    wait_until(&mirror, |status| status.settled && status.applied.iter().any(|step| step.name() == "two")).await?;
    assert_eq!(running.count_responses(4).await, BTreeMap::from([("a".to_owned(), 2), ("c".to_owned(), 2)]));

    running.restart().await?;
    let restored = async {
        while running.count_responses(4).await != BTreeMap::from([("a".to_owned(), 2), ("c".to_owned(), 2)]) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, restored).await?;
    let found = running.target()?.read().await?;
    assert_eq!(found.others.into_iter().collect::<Vec<_>>(), ["other"], "foreign servers stay unchanged");
    mirror.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_servers_are_adopted() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let running = RunningHaproxy::start(program, "adopted").await?;
    let a = start_backend("a").await?;
    let mirror = running.mirror()?;
    mirror.set_desired(desired(&[("one", a, 10), ("two", a, 10)]));
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;
    drop(mirror);

    let mirror = running.mirror()?;
    mirror.set_desired(desired(&[("one", a, 10)]));
    wait_until(&mirror, |status| status.settled && status.entries == 1).await?;
    let ActualState { own, .. } = running.target()?.read().await?;
    assert_eq!(own, BTreeMap::from([("one".to_owned(), Server { address: a, weight: 10 })]));
    Ok(())
}

#[tokio::test]
async fn server_errors_include_remedy() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let running = RunningHaproxy::start(program, "wrong").await?;
    let error = Haproxy::new(&running.socket(), "nowhere", "sf-")?.read().await.expect_err("no such backend");
    assert!(error.to_string().ends_with("; use the name of a backend in HAProxy's configuration"), "{error}");
    let error = Haproxy::new(Path::new("/nowhere/admin.sock"), "web", "sf-")?.read().await.expect_err("no socket");
    assert!(error.to_string().contains("`stats socket /nowhere/admin.sock level admin`"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_servers_return_in_two_seconds() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let mut running = RunningHaproxy::start(program, "thousand").await?;
    let target = running.target()?.server_options("check inter 60s maxconn 10".parse()?);
    let server = Server { address: start_backend("a").await?, weight: 1 };
    let steps: Vec<_> = (0..1000).map(|number| Step::Add { name: format!("pod-{number:04}"), value: server }).collect();
    assert!(target.read().await?.own.is_empty());
    target.apply(&steps).await?;
    assert_eq!(target.read().await?.own.len(), 1000);
    assert!(timeout(Duration::from_millis(1500), target.changed()).await.is_err(), "nothing has changed");

    let watching = target.clone();
    let noticed = tokio::spawn(async move { watching.changed().await });
    running.restart().await?;
    let restarted = Instant::now();
    timeout(TIMEOUT, noticed).await??;
    assert!(target.read().await?.own.is_empty());
    target.apply(&steps).await?;
    let took = restarted.elapsed();
    assert_eq!(target.read().await?.own.len(), 1000);
    assert!(took < Duration::from_secs(2), "{took:?}");

    // Servers with enabled checks can be removed, too.
    let removes: Vec<_> =
        (0..1000).map(|number| Step::Remove { name: format!("pod-{number:04}"), value: server }).collect();
    target.apply(&removes).await?;
    assert!(target.read().await?.own.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_haproxy_is_repaired_early() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let mut running = RunningHaproxy::start(program, "repaired").await?;
    let a = start_backend("a").await?;
    let mirror = Mirror::start("web", running.target()?, MirrorSettings::default(), MirrorMemory::volatile());
    mirror.set_desired(desired(&[("one", a, 10), ("two", a, 10)]));
    wait_until(&mirror, |status| status.settled && status.entries == 2).await?;
    running.restart().await?;
    let restarted = Instant::now();
    let mut failed = 0;
    while running.count_responses(1).await.contains_key("nobody") {
        failed += 1;
        sleep(Duration::from_millis(20)).await;
    }
    assert!(restarted.elapsed() < Duration::from_secs(2), "{failed} requests failed in {:?}", restarted.elapsed());
    let loss = mirror.status().borrow().loss.clone().ok_or("the loss is reported")?;
    assert_eq!(loss.missing, 2);
    assert!(loss.reason.starts_with("HAProxy was reloaded or restarted: process "), "{}", loss.reason);
    mirror.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_checked_server_costs_no_request() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let running = RunningHaproxy::start(program, "checked").await?;
    let target = running.target()?.server_options("check inter 100ms fall 1 rise 1 slowstart 0 maxconn 50".parse()?);
    let alive = start_backend("a").await?;
    let dead = StdListener::bind("127.0.0.1:0")?.local_addr()?;
    let add = |name: &str, address| Step::Add { name: name.to_owned(), value: Server { address, weight: 10 } };
    target.read().await?;
    target.apply(&[add("alive", alive), add("dead", dead)]).await?;
    assert_eq!(
        running.count_responses(20).await,
        BTreeMap::from([("a".to_owned(), 20)]),
        "requests are redispatched until the server is down"
    );
    let state = async || -> Result<BTreeMap<String, String>> {
        let mut stream = tokio::net::UnixStream::connect(running.socket()).await?;
        stream.write_all(b"show servers state web\n").await?;
        let mut listed = String::new();
        stream.read_to_string(&mut listed).await?;
        let fields = listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        Ok(fields
            .filter(|fields| fields.len() > 5)
            .map(|fields| (fields[3].to_owned(), fields[5].to_owned()))
            .collect())
    };
    let down = async {
        while state().await.is_ok_and(|state| state.get("sf-dead").is_none_or(|state| state != "0")) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, down).await?;
    assert_ne!(state().await?["sf-alive"], "0");

    // Checks that another client disabled are enabled again.
    let mut stream = tokio::net::UnixStream::connect(running.socket()).await?;
    stream.write_all(b"disable health web/sf-alive\n").await?;
    stream.read_to_string(&mut String::new()).await?;
    let from = target.read().await?.own["alive"];
    let to = Server { weight: 10, ..from };
    assert_ne!(from, to);
    target.apply(&[Step::Change { name: "alive".to_owned(), from, to }]).await?;
    assert_eq!(target.read().await?.own["alive"], to);
    Ok(())
}

#[tokio::test]
async fn rejected_option_error_includes_remedy() -> Result {
    let Some(program) = find_haproxy()? else { return Ok(()) };
    let running = RunningHaproxy::start(program, "options").await?;
    let target = running.target()?.server_options("ssl verify required ca-file /nowhere/ca.pem".parse()?);
    let value = Server { address: "127.0.0.1:9".parse()?, weight: 1 };
    let error = target.apply(&[Step::Add { name: "a".to_owned(), value }]).await.expect_err("no such file");
    assert!(error.to_string().contains("`ca-file @system-ca`"), "{error}");
    Ok(())
}
