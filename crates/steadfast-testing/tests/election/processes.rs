//! Three real processes on a real API server. The test kills or stops the leader repeatedly, and checks the history
//! in etcd for the times of accepted writes.
//!
//! `STEADFAST_KILLS=100` repeats this 100 times. Each candidate is a copy of this test program.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use steadfast::{Connection, kube};
use steadfast_controller::LeaderElection;
use steadfast_core::random::Random;
use steadfast_testing::reference::Reference;
use steadfast_testing::{TestError, config_map};

use crate::program::WRITTEN_OBJECT;
use crate::write_check::{violations, write_runs_in};

/// Environment variable with the path of the kubeconfig. If it is set, this program runs as a candidate.
const CANDIDATE_VARIABLE: &str = "STEADFAST_ELECTION_CANDIDATE";
/// Name of the test that a candidate runs.
const CANDIDATE_TEST: &str = "processes::only_one_of_three_processes_writes";

/// Short durations, for many rounds: the margin is 2 s, and each failure costs at most a few seconds.
const LEASE_DURATION: Duration = Duration::from_secs(6);
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Timeout for expected events on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn only_one_of_three_processes_writes() -> Result<(), TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match std::env::var_os(CANDIDATE_VARIABLE) {
        Some(kubeconfig) => runtime.block_on(run_candidate(Path::new(&kubeconfig))),
        None => runtime.block_on(kill_and_stop()),
    }
}

/// Participates in the election, and writes while leading, until the parent process ends.
async fn run_candidate(kubeconfig: &Path) -> Result<(), TestError> {
    let (parent_ended, mut parent_end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        // The send fails only if the receiver was dropped, so its result is irrelevant.
        let _ = parent_ended.send(());
    });
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let connection = Connection::new(config)?;
    let election = LeaderElection::builder(&connection, "default", "it")
        .identity(std::process::id().to_string())
        .lease_duration(LEASE_DURATION)
        .renew_deadline(RENEW_DEADLINE)
        .retry_period(RETRY_PERIOD)
        .start()?;
    let mut term_count = 0;
    loop {
        let leader = tokio::select! {
            leader = election.until_leader() => leader.ok_or("it was stopped")?,
            _ = &mut parent_end => return Ok(()),
        };
        term_count += 1;
        let holder = format!("{}#{term_count}", election.identity());
        let writers = (0..2).map(|_| write(leader.client(), holder.clone()));
        tokio::select! {
            () = leader.until_lost() => {
                // Continues to write after the end of the term. The fence must reject these writes.
                let late_write = write(leader.client(), holder);
                drop(tokio::time::timeout(Duration::from_millis(500), late_write).await);
            }
            _ = futures::future::join_all(writers) => {}
            _ = &mut parent_end => return Ok(()),
        }
    }
}

/// Writes as `holder`, as fast as the server allows.
async fn write(client: kube::Client, holder: String) {
    let objects: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0_u64.. {
        let patch = Patch::Merge(json!({ "data": { "holder": holder, "number": number.to_string() } }));
        // The loop ignores failures: each attempt is independent.
        let _ = objects.patch(WRITTEN_OBJECT, &PatchParams::default(), &patch).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Candidate process, killed on drop.
struct Candidate {
    process: Child,
}

impl Candidate {
    fn start(kubeconfig: &Path) -> Result<Self, TestError> {
        let process = Command::new(std::env::current_exe()?)
            .args(["--exact", CANDIDATE_TEST, "--nocapture"])
            .env(CANDIDATE_VARIABLE, kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process })
    }

    fn signal(&self, signal: &str) -> Result<(), TestError> {
        let status = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill {signal}: {status}").into()) }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

async fn kill_and_stop() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let kills = std::env::var("STEADFAST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3_usize);
    let seed = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let connection = reference.connection().await?;
    let objects: Api<ConfigMap> = Api::namespaced(connection.client(), "default");
    objects
        .create(&PostParams::default(), &serde_json::from_value(serde_json::to_value(config_map(WRITTEN_OBJECT, ""))?)?)
        .await?;
    let leases: Api<Lease> = Api::namespaced(connection.client(), "default");
    let mut candidates = Vec::new();
    for _ in 0..3 {
        candidates.push(Candidate::start(&reference.kubeconfig())?);
    }
    let mut takeover_times = Vec::new();
    let mut previous_holder = None;
    for kill in 0..kills {
        let start = Instant::now();
        let (leader, number) = loop {
            let holder = leases.get_opt("it").await?.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let process = holder.split('_').next().unwrap_or_default();
            let number = candidates.iter().position(|candidate| candidate.process.id().to_string() == process);
            if let Some(number) = number.filter(|_| previous_holder.as_ref() != Some(&holder)) {
                break (holder, number);
            }
            if start.elapsed() > EVENT_TIMEOUT {
                return Err(format!("no process leads after {EVENT_TIMEOUT:?}: the lease holder is {holder}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        if previous_holder.is_some() {
            takeover_times.push(start.elapsed());
        }
        // Kills or stops the leader in the middle of its work.
        tokio::time::sleep(random.between(Duration::from_millis(300), Duration::from_secs(2))).await;
        previous_holder = Some(leader);
        match kill % 4 {
            0 | 2 => candidates[number] = Candidate::start(&reference.kubeconfig())?,
            1 => {
                candidates[number].signal("-STOP")?;
                // The process resumes after another candidate has led for a while.
                let stop_duration = random.between(2 * LEASE_DURATION, 4 * LEASE_DURATION);
                let process = candidates[number].process.id().to_string();
                tokio::spawn(async move {
                    tokio::time::sleep(stop_duration).await;
                    // The process may have ended in the meantime.
                    drop(Command::new("kill").args(["-CONT", &process]).status());
                });
            }
            _ => {
                // The stop lasts about as long as the term, so the leader may or may not lead afterwards.
                candidates[number].signal("-STOP")?;
                tokio::time::sleep(random.between(RENEW_DEADLINE / 2, LEASE_DURATION + RETRY_PERIOD)).await;
                candidates[number].signal("-CONT")?;
                previous_holder = None;
            }
        }
    }
    tokio::time::sleep(2 * LEASE_DURATION).await;
    drop(candidates);
    let history = reference.history("", "configmaps").await?;
    let write_runs = write_runs_in(&history);
    let writes: usize = write_runs.iter().map(|run| run.writes).sum();
    takeover_times.sort();
    let (median, longest) = (takeover_times.get(takeover_times.len() / 2), takeover_times.last());
    println!(
        "{kills} kills: {} runs of writes, {writes} writes; another led after {median:?}, at worst {longest:?}",
        write_runs.len()
    );
    assert_eq!(violations(&write_runs), [""; 0]);
    // Every fourth fault is a short stop, which a leader may outlast.
    let expected = kills - kills / 4;
    assert!(
        write_runs.len() >= expected && writes > 10 * kills,
        "{} runs of writes, {writes} writes: too few",
        write_runs.len()
    );
    Ok(())
}
