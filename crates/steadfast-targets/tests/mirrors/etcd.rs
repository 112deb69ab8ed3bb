//! Tests with a real etcd. `etcdctl` reads the results.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_targets::etcd::{Etcd, EtcdError, EtcdValue};
use steadfast_targets::{
    ClaimResult, DesiredState, Limits, Mirror, MirrorMemory, MirrorSettings, MirrorStatus, SkipReason, Step, Target,
};
use tokio::time::{sleep, timeout};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(20);

fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Checks for the programs. Without them, the test prints the reason, or fails if skips are forbidden.
fn is_available() -> Result<bool> {
    let Some(missing) = ["etcd", "etcdctl"].into_iter().find(|program| find_program(program).is_none()) else {
        return Ok(true);
    };
    if std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
        return Err(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no {missing} on the path").into());
    }
    // Written to the terminal, because the harness captures the output of passing tests.
    let message = format!("skipped: there is no {missing} on the path\n");
    std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes())?;
    Ok(false)
}

/// Timeout for a start on a heavily loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of starts with other ports.
const MAX_START_ATTEMPTS: usize = 5;

/// etcd with one member on free ports and its own folder. Killed on drop.
struct RunningEtcd {
    folder: PathBuf,
    client_url: String,
    peer_url: String,
    process: Option<Child>,
}

impl RunningEtcd {
    async fn start(name: &str) -> Result<Self> {
        start_members(name, 1).await?.pop().ok_or_else(|| "no member".into())
    }

    fn prepare(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("steadfast-etcd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        // Both listeners stay open until both ports are known, so that the ports differ.
        let (one, two) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let url = |listener: &TcpListener| Result::Ok(format!("http://{}", listener.local_addr()?));
        let (client_url, peer_url) = (url(&one)?, url(&two)?);
        drop((one, two));
        Ok(Self { folder, client_url, peer_url, process: None })
    }

    async fn spawn_and_wait(&mut self) -> Result {
        self.spawn("m0", &format!("m0={}", self.peer_url))?;
        if self.wait_until_ready().await? { Ok(()) } else { Err("the etcd has ended".into()) }
    }

    fn spawn(&mut self, name: &str, cluster: &str) -> Result {
        let Self { folder, client_url, peer_url, .. } = self;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder.join("data")).args(["--name", name, "--listen-client-urls", client_url]);
        command.args(["--advertise-client-urls", client_url, "--listen-peer-urls", peer_url]);
        command.args(["--initial-advertise-peer-urls", peer_url, "--initial-cluster", cluster]);
        self.process = Some(command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Sends a signal to the process.
    fn signal(&self, signal: &str) -> Result {
        let id = self.process.as_ref().ok_or("a process")?.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status()?.success());
        Ok(())
    }

    /// Waits until the member responds. Returns false if its process has ended.
    async fn wait_until_ready(&mut self) -> Result<bool> {
        let target = self.target("nobody")?;
        let ready = async {
            while target.read().await.is_err() {
                if self.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None))) {
                    return false;
                }
                sleep(Duration::from_millis(20)).await;
            }
            true
        };
        Ok(timeout(START_TIMEOUT, ready).await.map_err(|_| format!("no etcd within {START_TIMEOUT:?}"))?)
    }

    /// Kills the process without warning.
    fn stop(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    fn target(&self, mark: &str) -> std::result::Result<Etcd, EtcdError> {
        Ok(Etcd::new(&[&self.client_url], "/services/", mark)?.with_lease_ttl(Duration::from_secs(3)))
    }

    fn mirror(&self, mark: &str) -> Result<Mirror<EtcdValue>> {
        let limits = Limits { share: 1.0, ..Limits::default() };
        let settings = MirrorSettings {
            limits,
            compare: Duration::from_millis(500),
            allow_empty: true,
            ..MirrorSettings::default()
        };
        Ok(Mirror::start("services", self.target(mark)?, settings, MirrorMemory::volatile()))
    }

    fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.client_url]).args(arguments);
        let output = command.output()?;
        if output.status.success() {
            Ok(String::from_utf8(output.stdout)?)
        } else {
            Err(format!("etcdctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }

    /// Returns all keys with their values.
    fn keys(&self) -> Result<BTreeMap<String, String>> {
        let text = self.etcdctl(&["get", "", "--prefix"])?;
        let lines: Vec<_> = text.lines().collect();
        // The ownership record is not an entry of the mirror.
        let keys = lines.chunks(2).filter(|kv| !kv[0].starts_with("steadfast-owner/"));
        Ok(keys.map(|kv| (kv[0].to_owned(), kv.get(1).unwrap_or(&"").to_string())).collect())
    }
}

impl Drop for RunningEtcd {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn desired(entries: &[(&str, &str)]) -> DesiredState<EtcdValue> {
    DesiredState::new(
        entries.iter().map(|(name, value)| ((*name).to_owned(), EtcdValue((*value).to_owned()))).collect(),
    )
}

fn key_values(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn add_steps(names: &[&str]) -> Vec<Step<EtcdValue>> {
    names.iter().map(|name| Step::Add { name: (*name).to_owned(), value: EtcdValue("mine".to_owned()) }).collect()
}

async fn wait_until(
    mirror: &Mirror<EtcdValue>,
    condition: impl Fn(&MirrorStatus<EtcdValue>) -> bool,
) -> Result<MirrorStatus<EtcdValue>> {
    let mut status = mirror.status();
    let waited = timeout(TIMEOUT, status.wait_for(|status| status.settled && condition(status))).await;
    Ok(waited.map_err(|_| format!("not within {TIMEOUT:?}: {:?}", mirror.status().borrow().failing))??.clone())
}

/// Waits until the target matches the current desired state, and not an earlier one.
async fn set_and_wait(mirror: &Mirror<EtcdValue>, entries: &[(&str, &str)]) -> Result<MirrorStatus<EtcdValue>> {
    mirror.set_desired(desired(entries));
    let reads = mirror.status().borrow().reads;
    // A pass that started before this desired state was set may finish next.
    wait_until(mirror, |status| status.reads > reads + 1).await
}

#[tokio::test]
async fn mirror_manages_only_its_keys() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("keys").await?;
    running.etcdctl(&["put", "/services/theirs", "x"])?;
    running.etcdctl(&["put", "/services0", "beside"])?;
    let mirror = running.mirror("one")?;
    let status =
        set_and_wait(&mirror, &[("a", "10.0.0.1:80"), ("ü/b c", "{\"z\": \"ß\"}"), ("theirs", "mine")]).await?;
    assert_eq!(status.skipped, BTreeMap::from([("theirs".to_owned(), SkipReason::Foreign)]));
    let others = [("/services/theirs", "x"), ("/services0", "beside")];
    let all = [&others[..], &[("/services/a", "10.0.0.1:80"), ("/services/ü/b c", "{\"z\": \"ß\"}")]].concat();
    assert_eq!(running.keys()?, key_values(&all));
    set_and_wait(&mirror, &[("a", "10.0.0.2:80")]).await?;
    assert_eq!(running.keys()?, key_values(&[&others[..], &[("/services/a", "10.0.0.2:80")]].concat()));

    // Another client takes over one key, and deletes another.
    set_and_wait(&mirror, &[("a", "1"), ("b", "2")]).await?;
    running.etcdctl(&["del", "/services/b"])?;
    running.etcdctl(&["put", "/services/a", "hand"])?;
    let status = set_and_wait(&mirror, &[("a", "1"), ("b", "2"), ("c", "3")]).await?;
    assert_eq!(status.skipped, BTreeMap::from([("a".to_owned(), SkipReason::Foreign)]));
    let expected = [("/services/a", "hand"), ("/services/b", "2"), ("/services/c", "3")];
    assert_eq!(running.keys()?, key_values(&[&others[..], &expected].concat()));
    set_and_wait(&mirror, &[]).await?;
    assert_eq!(running.keys()?, key_values(&[&others[..], &[("/services/a", "hand")]].concat()));
    Ok(())
}

#[tokio::test]
async fn lease_is_renewed_and_granted_again() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let mut running = RunningEtcd::start("lease").await?;
    let mirror = running.mirror("one")?;
    set_and_wait(&mirror, &[("a", "1"), ("b", "2")]).await?;
    let all = key_values(&[("/services/a", "1"), ("/services/b", "2")]);
    // The key of the ownership record contains the ID of the mirror's lease.
    let lease = async {
        loop {
            let owners = running.etcdctl(&["get", "steadfast-owner/", "--prefix", "--keys-only"])?;
            if let Some((_, lease)) = owners.lines().find_map(|line| line.split_once('/')) {
                return Result::Ok(lease.trim().to_owned());
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let lease = timeout(TIMEOUT, lease).await??;

    // Another client revokes the lease. etcd deletes its keys, and the next pass adds them under the same ID.
    running.etcdctl(&["lease", "revoke", &lease])?;
    let restored = async {
        while running.keys()? != all {
            sleep(Duration::from_millis(50)).await;
        }
        Result::Ok(())
    };
    timeout(TIMEOUT, restored).await??;
    assert!(running.etcdctl(&["lease", "list"])?.contains(&lease));

    // The wait is longer than the lease, so only renewals keep the lease alive.
    let steps = mirror.status().borrow().applied.clone();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(running.keys()?, all);
    assert_eq!(mirror.status().borrow().applied, steps, "no entry was added again");

    // A restart of either side preserves the entries.
    running.stop()?;
    running.spawn_and_wait().await?;
    mirror.stop().await;
    let found = running.target("one")?.read().await?;
    assert_eq!(found.own.len(), 2);

    // No process renews the lease.
    let gone = async {
        while !running.keys()?.is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        Result::Ok(())
    };
    timeout(TIMEOUT, gone).await??;
    let mirror = running.mirror("one")?;
    set_and_wait(&mirror, &[("a", "1")]).await?;
    assert_eq!(running.keys()?, key_values(&[("/services/a", "1")]));
    Ok(())
}

#[tokio::test]
async fn key_taken_after_read_stays_foreign() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("race").await?;
    let target = running.target("one")?;
    target.read().await?;
    running.etcdctl(&["put", "/services/race", "theirs"])?;
    let error = target.apply(&add_steps(&["a", "race", "z"])).await.expect_err("taken");
    assert!(matches!(&error, EtcdError::Conflict { keys } if keys == &["/services/race"]), "{error}");
    let expected = [("/services/a", "mine"), ("/services/race", "theirs"), ("/services/z", "mine")];
    assert_eq!(running.keys()?, key_values(&expected));

    // Tries to change and remove keys that the mirror no longer owns.
    let found = target.read().await?;
    running.etcdctl(&["put", "/services/a", "theirs"])?;
    let (from, to) = (EtcdValue("mine".to_owned()), EtcdValue("other".to_owned()));
    let change = Step::Change { name: "a".to_owned(), from, to };
    assert!(matches!(target.apply(&[change]).await, Err(EtcdError::Conflict { .. })));
    let all = found.own.into_iter().map(|(name, value)| Step::Remove { name, value });
    assert!(matches!(target.apply(&all.collect::<Vec<_>>()).await, Err(EtcdError::Conflict { .. })));
    assert_eq!(running.keys()?, key_values(&[("/services/a", "theirs"), ("/services/race", "theirs")]));
    Ok(())
}

#[tokio::test]
async fn many_keys_are_paged_and_batched() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("many").await?;
    let names: Vec<_> = (0..2500).map(|number| format!("n{number:05}")).collect();
    let target = running.target("one")?;
    target.apply(&add_steps(&names.iter().map(|name| &**name).collect::<Vec<_>>())).await?;
    let found = target.read().await?;
    assert_eq!(found.own.into_keys().collect::<Vec<_>>(), names);
    assert_eq!(running.keys()?.len(), 2500);
    assert_eq!(running.target("two")?.read().await?.others.len(), 2500);
    Ok(())
}

#[tokio::test]
async fn server_errors_include_remedy() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("wrong").await?;
    let nobody = format!("http://{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?);
    let error = Etcd::new(&[&nobody], "/services/", "m")?.read().await.expect_err("no server listens");
    assert!(error.to_string().contains("is it in its `--advertise-client-urls`"), "{error}");
    // Another endpoint responds.
    Etcd::new(&[&nobody, &running.client_url], "/services/", "m")?.read().await?;
    let large = Step::Add { name: "large".to_owned(), value: EtcdValue("x".repeat(1_600_000)) };
    let error = running.target("m")?.apply(&[large, add_steps(&["small"]).remove(0)]).await.expect_err("too much");
    assert!(error.to_string().contains("a value may have up to 1.5 MiB"), "{error}");
    assert_eq!(running.keys()?, key_values(&[("/services/small", "mine")]));

    running.etcdctl(&["user", "add", "root:secret"])?;
    running.etcdctl(&["user", "grant-role", "root", "root"])?;
    running.etcdctl(&["auth", "enable"])?;
    let error = running.target("m")?.read().await.expect_err("authentication is enabled");
    assert!(
        error.to_string().ends_with("; etcd requires authentication: configure a user with a password for the mirror"),
        "{error}"
    );
    let target = running.target("m")?.user("root", || Ok("wrong".to_owned()));
    let error = target.read().await.expect_err("a wrong password").to_string();
    assert!(error.contains("authentication failed") && !error.contains("wrong"), "{error}");
    Ok(())
}

/// Starts a cluster. Another process can take a port before a member listens on it. Other ports are then chosen.
async fn start_members(name: &str, count: usize) -> Result<Vec<RunningEtcd>> {
    'attempts: for attempt in 0..MAX_START_ATTEMPTS {
        let member = |number| RunningEtcd::prepare(&format!("{name}-{attempt}-{number}"));
        let mut members = (0..count).map(member).collect::<Result<Vec<_>>>()?;
        let named = members.iter().enumerate().map(|(number, member)| format!("m{number}={}", member.peer_url));
        let all = named.collect::<Vec<_>>().join(",");
        for (number, member) in members.iter_mut().enumerate() {
            member.spawn(&format!("m{number}"), &all)?;
        }
        for member in &mut members {
            if !member.wait_until_ready().await? {
                continue 'attempts;
            }
        }
        return Ok(members);
    }
    Err(format!("etcd has ended {MAX_START_ATTEMPTS} times").into())
}

#[tokio::test]
async fn frozen_member_delays_requests_once() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let members = start_members("frozen", 3).await?;
    let endpoints: Vec<_> = members.iter().map(|member| &*member.client_url).collect();
    let target = Etcd::new(&endpoints, "/services/", "one")?.with_lease_ttl(Duration::from_secs(300));
    target.read().await?;
    target.apply(&add_steps(&["before"])).await?;
    members[0].signal("-STOP")?;
    let started = Instant::now();
    // The timeout is longer than the attempt at the frozen member and the election of a new leader.
    let kept = timeout(TIMEOUT, async { while target.renew().await.is_err() {} });
    kept.await.map_err(|_| "the lease was not renewed")?;
    // The first attempt was rejected or timed out, so another pass follows.
    timeout(TIMEOUT, async { while target.read().await.is_err() {} })
        .await
        .map_err(|_| "no read within the timeout")?;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let started = Instant::now();
    target.apply(&add_steps(&["during"])).await?;
    assert_eq!(target.read().await?.own.len(), 2);
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "a second request was sent to the frozen member: {:?}",
        started.elapsed()
    );
    members[0].signal("-CONT")?;
    Ok(())
}

#[tokio::test]
async fn silent_endpoint_is_skipped() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("silent").await?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let silent = (format!("http://{}", silent.local_addr()?), silent);
    let target = Etcd::new(&[&silent.0, &running.client_url], "/services/", "one")?;
    let mirror = Mirror::start("services", target, MirrorSettings::default(), MirrorMemory::volatile());
    mirror.set_desired(desired(&[("a", "1")]));
    wait_until(&mirror, |status| status.entries == 1).await?;
    assert_eq!(running.keys()?, key_values(&[("/services/a", "1")]));
    Ok(())
}

/// Number of attempts without progress after which [`add_all`] fails.
const MAX_STALLED_ATTEMPTS: usize = 20;

/// Adds the missing entries of `desired`, until the target has exactly these. On a busy machine, etcd may not respond
/// in time. As in a mirror, the next read then shows which writes were applied. Any other error fails the test.
async fn add_all(target: &Etcd, desired: &BTreeMap<String, EtcdValue>) -> Result {
    let (mut stalled, mut known) = (0, 0);
    while stalled < MAX_STALLED_ATTEMPTS {
        stalled += 1;
        let own = match target.read().await {
            Ok(found) => found.own,
            Err(EtcdError::Unreachable { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if own == *desired {
            return Ok(());
        }
        assert!(own.iter().all(|(name, value)| desired.get(name) == Some(value)), "an entry has another value");
        if own.len() > known {
            (stalled, known) = (0, own.len());
        }
        let missing = desired.iter().filter(|(name, _)| !own.contains_key(*name));
        let steps: Vec<_> =
            missing.map(|(name, value)| Step::Add { name: name.clone(), value: value.clone() }).collect();
        match target.apply(&steps).await {
            Ok(()) | Err(EtcdError::Unreachable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(format!("no progress in {MAX_STALLED_ATTEMPTS} attempts, with {known} of {} entries", desired.len()).into())
}

#[tokio::test]
async fn oversized_value_affects_only_itself() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("sizes").await?;
    let target = running.target("one")?.with_lease_ttl(Duration::from_secs(300));
    let text = |bytes: usize| EtcdValue("x".repeat(bytes));
    let mut desired = BTreeMap::from([
        ("a".to_owned(), text(900_000)),
        ("b".to_owned(), text(900_000)),
        ("c".to_owned(), text(900_000)),
        ("d".to_owned(), text(1)),
        ("too-large".to_owned(), text(1_600_000)),
        ("z".to_owned(), text(1)),
    ]);
    let rejected = target.validate(&mut desired);
    assert_eq!(rejected.keys().collect::<Vec<_>>(), ["too-large"]);
    assert!(rejected["too-large"].contains("a value may have up to 1.5 MiB"), "{rejected:?}");
    add_all(&target, &desired).await?;
    // The prefix has one key more than fits into a page.
    desired.extend((0..36).map(|number| (format!("m{number:02}"), text(1_400_000))));
    add_all(&target, &desired).await
}

/// Returns true if the target reports a change within `limit`.
async fn reports_change(target: &Etcd, limit: Duration) -> bool {
    timeout(limit, target.changed()).await.is_ok()
}

#[tokio::test]
async fn external_changes_are_reported_immediately() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("watch").await?;
    let target = running.target("one")?;
    let limit = Duration::from_secs(2);
    target.read().await?;
    target.apply(&add_steps(&["a", "b"])).await?;
    target.read().await?;
    // Neither own writes nor foreign keys count as changes.
    running.etcdctl(&["put", "/services/theirs", "x"])?;
    running.etcdctl(&["put", "/elsewhere", "x"])?;
    assert!(!reports_change(&target, limit).await);

    let lease = running.etcdctl(&["lease", "list"])?.lines().last().ok_or("a lease")?.trim().to_owned();
    target.apply(&add_steps(&["c"])).await?;
    for command in [&["del", "/services/a"][..], &["put", "/services/b", "hand"], &["lease", "revoke", &lease]] {
        target.read().await?;
        running.etcdctl(command)?;
        assert!(reports_change(&target, limit).await, "{command:?}");
    }
    // A change that occurred without an open watch is detected by its revision.
    target.apply(&add_steps(&["d"])).await?;
    target.read().await?;
    running.etcdctl(&["del", "/services/d"])?;
    running.etcdctl(&["put", "/elsewhere", "y"])?;
    running.etcdctl(&["compaction", &target_revision(&running)?])?;
    assert!(reports_change(&target, limit).await, "a compacted revision");
    Ok(())
}

fn target_revision(running: &RunningEtcd) -> Result<String> {
    let status: serde_json::Value = serde_json::from_str(&running.etcdctl(&["endpoint", "status", "-w", "json"])?)?;
    Ok(status[0]["Status"]["header"]["revision"].to_string())
}

#[tokio::test]
async fn mirror_restores_revoked_lease_within_seconds() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("revoked").await?;
    let target = Etcd::new(&[&running.client_url], "/services/", "one")?;
    target.apply(&add_steps(&["a"])).await?;
    target.read().await?;
    let lease = running.etcdctl(&["lease", "list"])?.lines().last().ok_or("a lease")?.trim().to_owned();
    running.etcdctl(&["lease", "revoke", &lease])?;
    assert!(reports_change(&target, Duration::from_secs(2)).await);
    assert_eq!(target.read().await?.own.len(), 0);
    target.apply(&add_steps(&["a"])).await?;
    assert_eq!(target.read().await?.own.len(), 1);
    Ok(())
}

#[tokio::test]
async fn user_with_password_gets_new_tokens() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("users").await?;
    running.etcdctl(&["user", "add", "root:secret"])?;
    running.etcdctl(&["user", "grant-role", "root", "root"])?;
    running.etcdctl(&["role", "add", "mirror"])?;
    running.etcdctl(&["role", "grant-permission", "mirror", "--prefix=true", "readwrite", "/services/"])?;
    running.etcdctl(&["user", "add", "mirror:first"])?;
    running.etcdctl(&["user", "grant-role", "mirror", "mirror"])?;
    running.etcdctl(&["auth", "enable"])?;
    let root = |arguments: &[&str]| running.etcdctl(&[&["--user=root:secret"], arguments].concat());
    let password = Arc::new(Mutex::new("first".to_owned()));
    let current = password.clone();
    let target = running.target("one")?.user("mirror", move || Ok(current.lock().clone()));
    target.read().await?;
    target.apply(&add_steps(&["a"])).await?;
    assert_eq!(target.read().await?.own.len(), 1);
    // Each change of users and roles invalidates the tokens.
    *password.lock() = "second".to_owned();
    let mut child = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args([
            "--endpoints",
            &running.client_url,
            "--user=root:secret",
            "user",
            "passwd",
            "mirror",
            "--interactive=false",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    std::io::Write::write_all(&mut child.stdin.take().ok_or("a pipe")?, b"second\n")?;
    assert!(child.wait()?.success());
    target.apply(&add_steps(&["b"])).await?;
    assert_eq!(target.read().await?.own.len(), 2);
    root(&["del", "/services/a"])?;
    assert!(reports_change(&target, TIMEOUT).await);
    // The record outside of the prefix needs its own permission.
    let error = target.claim("x", 1).await.expect_err("no permission").to_string();
    assert!(error.contains("permission denied") && !error.contains("second"), "{error}");
    Ok(())
}

#[tokio::test]
async fn second_process_with_mark_is_reported() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("owner").await?;
    let (one, other) = (running.target("m")?, running.target("m")?);
    assert_eq!(one.claim("one", 1000).await?, ClaimResult::Ours);
    assert_eq!(one.claim("one", 1010).await?, ClaimResult::Ours);
    let claim = ClaimResult::Other { instance: "one".to_owned(), renewed: 1000 };
    assert_eq!(other.claim("other", 1020).await?, claim);
    assert_eq!(one.claim("one", 1080).await?, ClaimResult::Ours);
    let claim = ClaimResult::Other { instance: "one".to_owned(), renewed: 1080 };
    assert_eq!(other.claim("other", 1081).await?, claim);
    // Each mark has its own ownership record.
    assert_eq!(running.target("n")?.claim("other", 1081).await?, ClaimResult::Ours);
    assert!(one.read().await?.others.is_empty(), "the record lies outside of the prefix");
    // The lease expires when no process renews it.
    for lease in running.etcdctl(&["lease", "list"])?.lines().skip(1) {
        running.etcdctl(&["lease", "revoke", lease])?;
    }
    assert_eq!(other.claim("other", 1400).await?, ClaimResult::Ours);
    assert_eq!(one.claim("one", 1401).await?, ClaimResult::Other { instance: "other".to_owned(), renewed: 1400 });
    Ok(())
}

#[tokio::test]
async fn etcd_rejects_writes_of_earlier_term() -> Result {
    if !is_available()? {
        return Ok(());
    }
    let running = RunningEtcd::start("term").await?;
    let (earlier, later) = (running.target("m")?, running.target("m")?);
    assert!(earlier.record_term(5, 1000).await?);
    earlier.apply(&add_steps(&["a", "b"])).await?;
    assert!(later.record_term(6, 1000).await?);
    // The earlier leader sends this write late, like a process that was suspended between its check and the write.
    let error = earlier.apply(&add_steps(&["c", "d"])).await.expect_err("another term is recorded").to_string();
    assert!(
        error.contains("a later leader writes these keys") && error.contains("the term 5") && error.contains('6'),
        "{error}"
    );
    assert!(!earlier.record_term(5, 1000).await?, "an earlier term cannot return");
    assert!(earlier.apply(&add_steps(&["c"])).await.is_err());
    later.apply(&add_steps(&["e"])).await?;
    assert!(later.record_term(6, 1100).await?, "renewed");
    let found = later.read().await?;
    assert_eq!(found.own.keys().collect::<Vec<_>>(), ["a", "b", "e"]);
    assert!(found.others.is_empty(), "the record lies outside of the prefix");
    // Without replicas, no term is recorded.
    running.target("m")?.apply(&add_steps(&["f"])).await?;
    Ok(())
}
