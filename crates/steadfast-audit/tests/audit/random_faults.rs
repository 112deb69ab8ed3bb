//! Random schedules of faults: each injected fault is found within its bound, and nothing else is reported.

use std::time::Duration;

use steadfast_apiserver::Verb;
use steadfast_audit::AuditFindingKind::{self, LostEvents, ReplicaBehind, StalledStream, Unresponsive};
use steadfast_testing::TestError;
use tokio::time::sleep;

use crate::fixture::Fixture;

const PERIOD: Duration = Duration::from_secs(600);

/// Number of faults in a schedule.
const FAULTS: usize = 12;

/// Seeds of a run; `STEADFAST_SEEDS` tries more.
fn seeds() -> u64 {
    std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

/// Source of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % end
    }
}

/// A run with its own changes.
struct Run {
    fixture: Fixture,
    random: Random,
    next_name: u64,
}

impl Run {
    /// Changes objects of all resources for this duration.
    async fn churn(&mut self, duration: Duration) {
        let end = tokio::time::Instant::now() + duration;
        while tokio::time::Instant::now() < end {
            self.next_name += 1;
            let (resource, name) = (self.random.below(3) as usize, format!("object-{}", self.next_name));
            self.fixture.create(resource, &name);
            if self.random.below(2) == 0 {
                self.fixture.change(resource, &name, "2");
            }
            if self.random.below(3) == 0 {
                self.fixture.delete(resource, &name);
            }
            sleep(Duration::from_millis(500 + self.random.below(8000))).await;
        }
    }

    /// Waits until the watch of a resource is open, and not close to its timeout: its end would also end the stall.
    async fn wait_for_young_watch(&self, replica: usize, resource: usize, suffix: &str) {
        loop {
            let requests = self.fixture.server.requests();
            let mut started = requests.iter().filter(|request| {
                let is_short = request.query.ends_with("timeoutSeconds=3");
                request.replica == replica && request.verb == Verb::Watch && !is_short && request.path.ends_with(suffix)
            });
            let age = started.next_back().map(|request| self.fixture.server.elapsed().saturating_sub(request.at));
            let is_open = self.fixture.audit.stats().endpoints[replica].streams[resource].is_open;
            if is_open && age.is_some_and(|age| age < Duration::from_secs(1500)) {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Injects one random fault, and returns the expected finding.
    async fn inject(&mut self) -> Option<(AuditFindingKind, usize, Option<usize>)> {
        let replica = self.random.below(3) as usize;
        let resource = self.random.below(3) as usize;
        let faults = self.fixture.server.faults().replica(replica);
        match self.random.below(6) {
            0 => {
                faults.freeze(true);
                self.fixture.wait_for(Unresponsive, replica, Duration::from_secs(15)).await;
                self.churn(Duration::from_secs(40)).await;
                faults.freeze(false);
                Some((Unresponsive, replica, None))
            }
            1 => {
                faults.lag(true);
                self.next_name += 1;
                self.fixture.create(resource, &format!("object-{}", self.next_name));
                self.fixture.wait_for(ReplicaBehind, replica, Duration::from_secs(60)).await;
                faults.lag(false);
                Some((ReplicaBehind, replica, Some(resource)))
            }
            2 => {
                let plural = ["configmaps", "secrets", "serviceaccounts"][resource];
                faults.drop_next_event(plural);
                self.next_name += 1;
                self.fixture.create(resource, &format!("object-{}", self.next_name));
                self.fixture.wait_for(LostEvents, replica, PERIOD).await;
                Some((LostEvents, replica, Some(resource)))
            }
            3 => {
                let suffix = format!("/{}", ["configmaps", "secrets", "serviceaccounts"][resource]);
                self.wait_for_young_watch(replica, resource, &suffix).await;
                let requests = self.fixture.server.requests();
                // This includes short watches, which have ended: a stall has no effect on them.
                let watches = requests.iter().filter(|request| {
                    request.replica == replica && request.verb == Verb::Watch && request.path.contains(&suffix)
                });
                watches.for_each(|request| faults.stall_stream(request.id, true));
                self.next_name += 1;
                self.fixture.create(resource, &format!("object-{}", self.next_name));
                self.fixture.wait_for(StalledStream, replica, Duration::from_secs(120)).await;
                Some((StalledStream, replica, Some(resource)))
            }
            4 => {
                faults.restart();
                None
            }
            _ => {
                faults.end_watches();
                None
            }
        }
    }
}

async fn run(seed: u64) -> Result<(), TestError> {
    let fixture = Fixture::start(3, 3).await?;
    let mut run = Run { fixture, random: Random(seed), next_name: 0 };
    let mut expected = Vec::new();
    for _ in 0..FAULTS {
        // A loss is active for up to two periods, and an active finding is not reported again.
        let pause = 1300 + run.random.below(400);
        run.churn(Duration::from_secs(pause)).await;
        if let Some((kind, replica, resource)) = run.inject().await {
            let resource = resource.map(|at| ["configmaps", "secrets", "serviceaccounts"][at].to_owned());
            expected.push((kind, format!("endpoint-{replica}"), resource));
        }
    }
    run.churn(PERIOD * 2).await;
    let started = run.fixture.started();
    assert_eq!(started, expected, "seed {seed}: {:#?}", run.fixture.finding_texts());
    let ended = run.fixture.findings().len() - started.len();
    assert_eq!(ended, started.len(), "seed {seed}: each finding ends: {:#?}", run.fixture.finding_texts());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn findings_equal_injected_faults() -> Result<(), TestError> {
    for seed in 0..seeds() {
        run(seed).await?;
    }
    Ok(())
}
