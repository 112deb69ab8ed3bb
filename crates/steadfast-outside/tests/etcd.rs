//! A real etcd: what `etcdctl` reads is the judge.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use steadfast_outside::etcd::{Etcd, EtcdError, Text};
use steadfast_outside::{Kept, Limits, Memory, Mirror, Settings, Status, Step, Target, Wanted};
use tokio::time::{sleep, timeout};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const SOON: Duration = Duration::from_secs(20);

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Whether it is there; where it is not, that is told, or is an error.
fn is_there() -> Result<bool> {
    let Some(missing) = ["etcd", "etcdctl"].into_iter().find(|program| found(program).is_none()) else {
        return Ok(true);
    };
    if std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1") {
        return Err(format!("STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no {missing} on the path").into());
    }
    // Past the capture of tests that pass.
    let told = format!("skipped: there is no {missing} on the path\n");
    std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes())?;
    Ok(false)
}

/// An etcd of one member on free ports, with a folder of its own; killed when it is dropped.
struct Running {
    folder: PathBuf,
    client: String,
    peer: String,
    process: Option<Child>,
}

impl Running {
    async fn start(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("steadfast-etcd-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        // Both held until both are known, so that they differ.
        let (one, two) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let url = |listener: &TcpListener| Result::Ok(format!("http://{}", listener.local_addr()?));
        let (client, peer) = (url(&one)?, url(&two)?);
        drop((one, two));
        let mut running = Self { folder, client, peer, process: None };
        running.begin().await?;
        Ok(running)
    }

    async fn begin(&mut self) -> Result {
        let Self { folder, client, peer, .. } = self;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder.join("data")).args(["--listen-client-urls", client]);
        command.args(["--advertise-client-urls", client, "--listen-peer-urls", peer]);
        command.args(["--initial-advertise-peer-urls", peer, "--initial-cluster", &format!("default={peer}")]);
        self.process = Some(command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?);
        let target = self.target("nobody")?;
        let ready = async {
            while target.look().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        Ok(timeout(SOON, ready).await.map_err(|_| "no etcd after some time")?)
    }

    /// Without warning.
    fn stop(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    fn target(&self, mark: &str) -> std::result::Result<Etcd, EtcdError> {
        Ok(Etcd::new(&[&self.client], "/services/", mark)?.lasting(Duration::from_secs(3)))
    }

    fn mirror(&self, mark: &str) -> Result<Mirror<Text>> {
        let limits = Limits { share: 1.0, ..Limits::default() };
        let settings = Settings { limits, compare: Duration::from_millis(500), ..Settings::default() };
        Ok(Mirror::start("services", self.target(mark)?, settings, Memory::volatile()))
    }

    fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.client]).args(arguments);
        let output = command.output()?;
        if output.status.success() {
            Ok(String::from_utf8(output.stdout)?)
        } else {
            Err(format!("etcdctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }

    /// All keys that there are, and what they have.
    fn keys(&self) -> Result<BTreeMap<String, String>> {
        let text = self.etcdctl(&["get", "", "--prefix"])?;
        let lines: Vec<_> = text.lines().collect();
        Ok(lines.chunks(2).map(|kv| (kv[0].to_owned(), kv.get(1).unwrap_or(&"").to_string())).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn wanted(entries: &[(&str, &str)]) -> Wanted<Text> {
    Wanted::certain(entries.iter().map(|(name, value)| ((*name).to_owned(), Text((*value).to_owned()))).collect())
}

fn pairs(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn adds(names: &[&str]) -> Vec<Step<Text>> {
    names.iter().map(|name| Step::Add { name: (*name).to_owned(), value: Text("mine".to_owned()) }).collect()
}

async fn until(mirror: &Mirror<Text>, what: impl Fn(&Status<Text>) -> bool) -> Result<Status<Text>> {
    let mut status = mirror.status();
    let waited = timeout(SOON, status.wait_for(|status| status.settled && what(status))).await;
    Ok(waited.map_err(|_| format!("not in {SOON:?}: {:?}", mirror.status().borrow().failing))??.clone())
}

/// Waits until all is as it is wanted now, and no earlier wish.
async fn want(mirror: &Mirror<Text>, entries: &[(&str, &str)]) -> Result<Status<Text>> {
    mirror.want(wanted(entries));
    let looks = mirror.status().borrow().looks;
    // One that has begun before this was wanted may be the next.
    until(mirror, |status| status.looks > looks + 1).await
}

#[tokio::test]
async fn keys_come_and_change_and_go_and_those_of_others_are_left_alone() -> Result {
    if !is_there()? {
        return Ok(());
    }
    let running = Running::start("keys").await?;
    running.etcdctl(&["put", "/services/theirs", "x"])?;
    running.etcdctl(&["put", "/services0", "beside"])?;
    let mirror = running.mirror("one")?;
    let status = want(&mirror, &[("a", "10.0.0.1:80"), ("ü/b c", "{\"z\": \"ß\"}"), ("theirs", "mine")]).await?;
    assert_eq!(status.kept, BTreeMap::from([("theirs".to_owned(), Kept::Others)]));
    let others = [("/services/theirs", "x"), ("/services0", "beside")];
    let all = [&others[..], &[("/services/a", "10.0.0.1:80"), ("/services/ü/b c", "{\"z\": \"ß\"}")]].concat();
    assert_eq!(running.keys()?, pairs(&all));
    want(&mirror, &[("a", "10.0.0.2:80")]).await?;
    assert_eq!(running.keys()?, pairs(&[&others[..], &[("/services/a", "10.0.0.2:80")]].concat()));

    // Somebody's hand takes the key over, and then another away.
    want(&mirror, &[("a", "1"), ("b", "2")]).await?;
    running.etcdctl(&["del", "/services/b"])?;
    running.etcdctl(&["put", "/services/a", "hand"])?;
    let status = want(&mirror, &[("a", "1"), ("b", "2"), ("c", "3")]).await?;
    assert_eq!(status.kept, BTreeMap::from([("a".to_owned(), Kept::Others)]));
    let expected = [("/services/a", "hand"), ("/services/b", "2"), ("/services/c", "3")];
    assert_eq!(running.keys()?, pairs(&[&others[..], &expected].concat()));
    want(&mirror, &[]).await?;
    assert_eq!(running.keys()?, pairs(&[&others[..], &[("/services/a", "hand")]].concat()));
    Ok(())
}

#[tokio::test]
async fn a_lease_that_is_kept_outlives_its_time_and_one_that_is_lost_is_granted_again() -> Result {
    if !is_there()? {
        return Ok(());
    }
    let mut running = Running::start("lease").await?;
    let mirror = running.mirror("one")?;
    want(&mirror, &[("a", "1"), ("b", "2")]).await?;
    let all = pairs(&[("/services/a", "1"), ("/services/b", "2")]);
    let leases = running.etcdctl(&["lease", "list"])?;
    let lease = leases.lines().last().ok_or("a lease")?.trim().to_owned();

    // Somebody takes it away: with it goes all that it is for, and comes again with the next look, under the same number.
    running.etcdctl(&["lease", "revoke", &lease])?;
    let again = async {
        while running.keys()? != all {
            sleep(Duration::from_millis(50)).await;
        }
        Result::Ok(())
    };
    timeout(SOON, again).await??;
    assert_eq!(running.etcdctl(&["lease", "list"])?, leases);

    // Longer than it lasts by itself: the mirror looks, and keeps it.
    let steps = mirror.status().borrow().done.clone();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(running.keys()?, all);
    assert_eq!(mirror.status().borrow().done, steps, "nothing had to be put there again");

    // A restart of either side finds what there was.
    running.stop()?;
    running.begin().await?;
    mirror.stop().await;
    let found = running.target("one")?.look().await?;
    assert_eq!(found.own.len(), 2);

    // Nobody keeps it.
    let gone = async {
        while !running.keys()?.is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        Result::Ok(())
    };
    timeout(SOON, gone).await??;
    let mirror = running.mirror("one")?;
    want(&mirror, &[("a", "1")]).await?;
    assert_eq!(running.keys()?, pairs(&[("/services/a", "1")]));
    Ok(())
}

#[tokio::test]
async fn a_key_that_somebody_takes_in_between_is_theirs_and_no_other_waits_for_it() -> Result {
    if !is_there()? {
        return Ok(());
    }
    let running = Running::start("race").await?;
    let target = running.target("one")?;
    target.look().await?;
    running.etcdctl(&["put", "/services/race", "theirs"])?;
    let error = target.act(&adds(&["a", "race", "z"])).await.expect_err("taken");
    assert!(matches!(&error, EtcdError::Taken { keys } if keys == &["/services/race"]), "{error}");
    let expected = [("/services/a", "mine"), ("/services/race", "theirs"), ("/services/z", "mine")];
    assert_eq!(running.keys()?, pairs(&expected));

    // What is no more its own when it is to be changed, or taken out.
    let found = target.look().await?;
    running.etcdctl(&["put", "/services/a", "theirs"])?;
    let (from, to) = (Text("mine".to_owned()), Text("other".to_owned()));
    let change = Step::Change { name: "a".to_owned(), from, to };
    assert!(matches!(target.act(&[change]).await, Err(EtcdError::Taken { .. })));
    let all = found.own.into_iter().map(|(name, value)| Step::Remove { name, value });
    assert!(matches!(target.act(&all.collect::<Vec<_>>()).await, Err(EtcdError::Taken { .. })));
    assert_eq!(running.keys()?, pairs(&[("/services/a", "theirs"), ("/services/race", "theirs")]));
    Ok(())
}

#[tokio::test]
async fn more_keys_than_a_page_or_a_transaction_are_all_seen_and_written() -> Result {
    if !is_there()? {
        return Ok(());
    }
    let running = Running::start("many").await?;
    let names: Vec<_> = (0..2500).map(|number| format!("n{number:05}")).collect();
    let target = running.target("one")?;
    target.act(&adds(&names.iter().map(|name| &**name).collect::<Vec<_>>())).await?;
    let found = target.look().await?;
    assert_eq!(found.own.into_keys().collect::<Vec<_>>(), names);
    assert_eq!(running.keys()?.len(), 2500);
    assert_eq!(running.target("two")?.look().await?.others.len(), 2500);
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_is_told_with_what_to_do_about_it() -> Result {
    if !is_there()? {
        return Ok(());
    }
    let running = Running::start("wrong").await?;
    let nobody = format!("http://{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?);
    let error = Etcd::new(&[&nobody], "/services/", "m")?.look().await.expect_err("nobody listens");
    assert!(error.to_string().contains("is it in its `--advertise-client-urls`"), "{error}");
    // Another endpoint does.
    Etcd::new(&[&nobody, &running.client], "/services/", "m")?.look().await?;
    let large = Step::Add { name: "large".to_owned(), value: Text("x".repeat(1_600_000)) };
    let error = running.target("m")?.act(&[large, adds(&["small"]).remove(0)]).await.expect_err("too much");
    assert!(error.to_string().contains("a value may have up to 1.5 MiB"), "{error}");
    assert_eq!(running.keys()?, pairs(&[("/services/small", "mine")]));

    running.etcdctl(&["user", "add", "root:secret"])?;
    running.etcdctl(&["user", "grant-role", "root", "root"])?;
    running.etcdctl(&["auth", "enable"])?;
    let error = running.target("m")?.look().await.expect_err("it asks who is there");
    assert!(error.to_string().ends_with("; it asks who is there, and a mirror has no user of etcd yet"), "{error}");
    Ok(())
}
