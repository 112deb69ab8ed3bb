//! Mirrors in virtual time. The target in memory fails at random by a seed, and other clients change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use steadfast_targets::{
    ActualState, ClaimResult, CompetingEntry, DesiredState, EntryValue, Limits, Mirror, MirrorMemory, MirrorSettings,
    MirrorState, MirrorStatus, Origin, SkipReason, Step, Target, TermKeeper, UnlimitedTerm,
};
use tokio::time::{Instant, sleep, timeout};

/// Value that serves unless it is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TestValue(i32);

impl EntryValue for TestValue {
    fn serves(&self) -> bool {
        self.0 >= 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self(-1 - self.0.max(0)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the target does not respond")]
struct NoResponse;

struct FakeTargetState {
    own: BTreeMap<String, TestValue>,
    others: BTreeSet<String>,
    busy: BTreeSet<String>,
    rng: Rng,
    /// Percentages of reads and steps that fail, that succeed but return an error, and that get no response.
    failure_percent: u32,
    /// Lowest number of serving entries since this field was set.
    min_serving: usize,
    steps: usize,
}

impl FakeTargetState {
    fn serving(&self) -> usize {
        self.own.values().filter(|number| number.serves()).count()
    }
}

#[derive(Clone)]
struct FakeTarget(Arc<Mutex<FakeTargetState>>);

impl FakeTarget {
    fn new(seed: u64, failure_percent: u32) -> Self {
        let (own, others, busy) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self(Arc::new(Mutex::new(FakeTargetState {
            own,
            others,
            busy,
            rng: Rng::with_seed(seed),
            failure_percent,
            min_serving: 0,
            steps: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, FakeTargetState> {
        self.0.lock()
    }

    fn fails(&self) -> bool {
        let mut state = self.lock();
        let failure_percent = state.failure_percent;
        state.rng.u32(0..100) < failure_percent
    }

    async fn respond(&self) -> Result<(), NoResponse> {
        if !self.fails() {
            return Ok(());
        }
        if self.fails() {
            std::future::pending::<()>().await;
        }
        Err(NoResponse)
    }
}

impl Target for FakeTarget {
    type Value = TestValue;
    type Error = NoResponse;

    async fn read(&self) -> Result<ActualState<TestValue>, NoResponse> {
        self.respond().await?;
        let state = self.lock();
        Ok(ActualState { own: state.own.clone(), others: state.others.clone(), busy: state.busy.clone() })
    }

    async fn apply(&self, steps: &[Step<TestValue>]) -> Result<(), NoResponse> {
        for step in steps {
            if self.fails() {
                return self.respond().await;
            }
            let mut state = self.lock();
            assert!(!state.others.contains(step.name()), "{step:?} changes a foreign entry");
            state.steps += 1;
            match step {
                Step::Add { name, value } | Step::Change { name, to: value, .. } => {
                    state.own.insert(name.clone(), *value);
                }
                Step::Remove { name, value } => {
                    assert!(!value.serves(), "{step:?} serves");
                    state.own.remove(name);
                }
            }
            state.min_serving = state.min_serving.min(state.serving());
        }
        // The step is applied, with or without a response.
        self.respond().await
    }

    fn describe(&self, _found: &ActualState<TestValue>, steps: &[Step<TestValue>]) -> Vec<String> {
        steps.iter().map(|step| format!("{step:?}")).collect()
    }
}

fn desired(names: impl IntoIterator<Item = usize>, value: i32) -> DesiredState<TestValue> {
    DesiredState::new(names.into_iter().map(|name| (name.to_string(), TestValue(value))).collect())
}

fn uncertain(names: impl IntoIterator<Item = usize>) -> DesiredState<TestValue> {
    DesiredState { doubt: Some("the cache is stale".into()), ..desired(names, 1) }
}

fn unlimited() -> MirrorSettings {
    MirrorSettings {
        limits: Limits { share: 1.0, ..Limits::default() },
        allow_empty: true,
        seed: 1,
        ..MirrorSettings::default()
    }
}

async fn wait_until(
    mirror: &Mirror<TestValue>,
    condition: impl FnMut(&MirrorStatus<TestValue>) -> bool,
) -> MirrorStatus<TestValue> {
    let mut status = mirror.status();
    let waited = timeout(Duration::from_secs(20 * 60), status.wait_for(condition)).await;
    waited
        .unwrap_or_else(|_| panic!("not within twenty minutes: {:?}", mirror.status().borrow()))
        .expect("a running mirror")
        .clone()
}

#[tokio::test(start_paused = true)]
async fn target_converges_despite_failures_and_interference() {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let mut steps = 0;
    for seed in 0..seeds {
        let (target, mut rng) = (FakeTarget::new(seed, 30), Rng::with_seed(!seed));
        let mirror = Mirror::start("m", target.clone(), unlimited(), MirrorMemory::volatile());
        let mut last_desired = BTreeMap::new();
        for _ in 0..20 {
            match rng.u32(0..4) {
                0 => {
                    let name = rng.usize(0..10).to_string();
                    let mut state = target.lock();
                    if state.others.contains(&name) {
                        state.others.remove(&name);
                    } else if !state.own.contains_key(&name) {
                        state.others.insert(name);
                    }
                }
                1 => {
                    let name = rng.usize(0..10).to_string();
                    target.lock().own.remove(&name);
                }
                _ => {
                    let names: BTreeSet<_> = (0..rng.usize(0..10)).map(|_| rng.usize(0..10)).collect();
                    let new_desired = desired(names, rng.i32(-2..5));
                    last_desired.clone_from(&new_desired.entries);
                    mirror.set_desired(new_desired);
                }
            }
            sleep(Duration::from_millis(rng.u64(0..20_000))).await;
        }
        target.lock().failure_percent = 0;
        // Mirrors compare at least once a minute, so a comparison during the sleep finds the changes of other clients.
        sleep(Duration::from_secs(3 * 60)).await;
        let others = target.lock().others.clone();
        last_desired.retain(|name, _| !others.contains(name));
        assert_eq!(target.lock().own, last_desired, "seed {seed}");
        let status = mirror.status().borrow().clone();
        assert!(status.settled && status.failing.is_none(), "seed {seed}: {status:?}");
        steps += target.lock().steps;
        mirror.stop().await;
    }
    assert!(steps as u64 > seeds * 20, "too few steps: {steps}");
}

#[tokio::test(start_paused = true)]
async fn uncertain_view_adds_but_never_removes() {
    let target = FakeTarget::new(1, 0);
    let mirror = Mirror::start("m", target.clone(), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..10, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 10).await;
    target.lock().min_serving = 10;

    mirror.set_desired(uncertain(8..12));
    let status = wait_until(&mirror, |status| status.settled && status.entries == 12).await;
    assert_eq!(status.skipped, (0..8).map(|name| (name.to_string(), SkipReason::Doubt)).collect());
    sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(target.lock().min_serving, 10);

    mirror.set_desired(desired(8..12, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 4).await;
}

#[tokio::test(start_paused = true)]
async fn state_of_earlier_term_removes_nothing() {
    let (target, (keeper, gate)) = (FakeTarget::new(1, 0), TermKeeper::new());
    let settings = MirrorSettings { gate, ..unlimited() };
    let mirror = Mirror::start("m", target.clone(), settings, MirrorMemory::volatile());
    // A standby wants the entries 0 and 1. The leader has removed 0, and has added 2.
    mirror.set_desired(desired(0..2, 1));
    target.lock().own = desired(1..3, 1).entries;
    target.lock().min_serving = 2;
    keeper.open(Arc::new(UnlimitedTerm(7)));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(target.lock().steps, 0, "the first pass waits for a state of this term");
    // A target that was emptied must not stay empty if no such state arrives.
    let status = wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    assert_eq!(status.skipped, [("2".to_owned(), SkipReason::Doubt)].into());
    sleep(Duration::from_secs(600)).await;
    let (steps, min_serving) = {
        let state = target.lock();
        (state.steps, state.min_serving)
    };
    assert_eq!((steps, min_serving), (1, 2));

    mirror.set_desired(DesiredState { term: 7, ..desired(2..3, 1) });
    wait_until(&mirror, |status| status.settled && status.entries == 1).await;
    assert_eq!(target.lock().own, desired(2..3, 1).entries);
}

#[tokio::test(start_paused = true)]
async fn freeze_does_not_end_wait_for_term() {
    let (target, (keeper, gate)) = (FakeTarget::new(1, 0), TermKeeper::new());
    let settings = MirrorSettings { gate, ..unlimited() };
    let mirror = Mirror::start("m", target.clone(), settings, MirrorMemory::volatile());
    mirror.set_desired(desired(0..2, 1));
    target.lock().own = desired(1..3, 1).entries;
    keeper.open(Arc::new(UnlimitedTerm(7)));
    sleep(Duration::from_millis(1500)).await;
    // The process is frozen for an hour. Afterwards, the state of the term needs some time.
    tokio::time::advance(Duration::from_secs(3600)).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(target.lock().steps, 0, "the first pass still waits");
    mirror.set_desired(DesiredState { term: 7, ..desired(1..3, 1) });
    wait_until(&mirror, |status| status.settled && status.entries == 2).await;
    assert_eq!(target.lock().steps, 0, "no entry of the earlier term was added");
}

#[tokio::test(start_paused = true)]
async fn takeover_keeps_contested_entry_with_holder() {
    let (target, (keeper, gate)) = (FakeTarget::new(1, 0), TermKeeper::new());
    let (leader_memory, standby_memory) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    let origin = |group: &str| Arc::new(Origin { group: group.to_owned(), ..Origin::default() });
    let desired_by = |group: &str, value: i32| {
        let origins = [("0".to_owned(), origin(group))].into();
        DesiredState { origins, ..desired(0..1, value) }
    };
    let leader = Mirror::start("m", target.clone(), unlimited(), leader_memory.clone());
    leader.set_desired(desired_by("first", 1));
    wait_until(&leader, |status| status.settled && status.entries == 1).await;
    leader.stop().await;

    standby_memory.import(&leader_memory.export(1 << 20)).expect("a complete export");
    let settings = MirrorSettings { gate, ..unlimited() };
    let standby = Mirror::start("m", target.clone(), settings, standby_memory);
    // A rule that precedes the holder's rule wants the same entry with another value.
    let competing = CompetingEntry { name: "0".to_owned(), value: TestValue(1), origin: origin("first") };
    standby.set_desired(DesiredState { competing: vec![competing], term: 7, ..desired_by("second", 2) });
    sleep(Duration::from_secs(1)).await;
    keeper.open(Arc::new(UnlimitedTerm(7)));
    let status = wait_until(&standby, |status| status.settled && status.entries == 1).await;
    assert_eq!(target.lock().own, desired(0..1, 1).entries);
    let is_kept = matches!(&status.skipped["0"], SkipReason::Conflict(conflict) if conflict.holder == "first");
    assert!(is_kept, "{:?}", status.skipped);
}

/// Target that needs four seconds for each read, and for each application of steps.
struct SlowTarget(FakeTarget);

impl SlowTarget {
    const DELAY: Duration = Duration::from_secs(4);

    /// Time from the start of a mirror to the middle of its first read.
    const IN_READ: Duration = Duration::from_secs(2);

    /// Time from the start of a mirror to the middle of its first application of steps.
    const IN_APPLY: Duration = Duration::from_secs(6);

    fn start_mirror(target: &FakeTarget) -> Mirror<TestValue> {
        let mirror = Mirror::start("m", Self(target.clone()), unlimited(), MirrorMemory::volatile());
        mirror.set_desired(desired(0..3, 1));
        mirror
    }
}

impl Target for SlowTarget {
    type Value = TestValue;
    type Error = NoResponse;

    async fn read(&self) -> Result<ActualState<TestValue>, NoResponse> {
        sleep(Self::DELAY).await;
        self.0.read().await
    }

    async fn apply(&self, steps: &[Step<TestValue>]) -> Result<(), NoResponse> {
        sleep(Self::DELAY).await;
        self.0.apply(steps).await
    }

    fn describe(&self, found: &ActualState<TestValue>, steps: &[Step<TestValue>]) -> Vec<String> {
        self.0.describe(found, steps)
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_mirror_applies_no_step() {
    let target = FakeTarget::new(1, 0);
    for delay in [SlowTarget::IN_READ, SlowTarget::IN_APPLY] {
        let mirror = SlowTarget::start_mirror(&target);
        sleep(delay).await;
        drop(mirror);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(target.lock().steps, 0, "dropped after {delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stop_during_read_applies_no_step() {
    let target = FakeTarget::new(1, 0);
    let mirror = SlowTarget::start_mirror(&target);
    sleep(SlowTarget::IN_READ).await;
    mirror.stop().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(target.lock().steps, 0);
}

#[tokio::test(start_paused = true)]
async fn plan_uses_desired_state_after_read() {
    let target = FakeTarget::new(1, 0);
    target.lock().own = desired(5..6, 1).entries;
    let mirror = SlowTarget::start_mirror(&target);
    sleep(SlowTarget::IN_READ).await;
    mirror.set_desired(uncertain(3..5));
    wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    assert_eq!(target.lock().own, desired(3..6, 1).entries);
    assert_eq!(target.lock().steps, 2, "nothing of the earlier state was applied");
}

#[tokio::test(start_paused = true)]
async fn stop_finishes_steps_in_flight() {
    let target = FakeTarget::new(1, 0);
    let mirror = SlowTarget::start_mirror(&target);
    sleep(SlowTarget::IN_APPLY).await;
    mirror.stop().await;
    assert_eq!(target.lock().own, desired(0..3, 1).entries);
}

#[tokio::test(start_paused = true)]
async fn cancelled_stop_aborts_steps_in_flight() {
    let target = FakeTarget::new(1, 0);
    let mirror = SlowTarget::start_mirror(&target);
    sleep(SlowTarget::IN_APPLY).await;
    assert!(timeout(Duration::from_secs(1), mirror.stop()).await.is_err(), "the steps are in flight");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(target.lock().steps, 0);
}

#[tokio::test(start_paused = true)]
async fn entry_in_use_drains_until_timeout() {
    let target = FakeTarget::new(1, 0);
    let mirror = Mirror::start("m", target.clone(), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..3, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    target.lock().busy.extend(["0".to_owned(), "1".to_owned()]);

    let started = Instant::now();
    mirror.set_desired(desired(2..3, 1));
    let status = wait_until(&mirror, |status| status.settled && status.skipped.len() == 2).await;
    assert_eq!(status.skipped["0"], SkipReason::InUse);
    assert_eq!(target.lock().serving(), 1, "a draining entry gets no new traffic");
    sleep(Duration::from_secs(10)).await;
    target.lock().busy.remove("0");
    mirror.compare_now();
    wait_until(&mirror, |status| status.settled && status.entries == 2).await;
    assert!(started.elapsed() < Duration::from_secs(29));
    wait_until(&mirror, |status| status.settled && status.entries == 1).await;
    let took = started.elapsed();
    assert!((30..40).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn draining_entry_desired_again_serves() {
    let target = FakeTarget::new(1, 0);
    let mirror = Mirror::start("m", target.clone(), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..3, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    target.lock().busy.insert("0".to_owned());
    mirror.set_desired(desired(1..3, 1));
    wait_until(&mirror, |status| status.settled && status.skipped.contains_key("0")).await;
    mirror.set_desired(desired(0..3, 1));
    wait_until(&mirror, |status| status.settled && status.skipped.is_empty()).await;
    assert_eq!(target.lock().serving(), 3);
}

#[tokio::test(start_paused = true)]
async fn approval_request_survives_restart() {
    let folder = std::env::temp_dir().join(format!("steadfast-mirrors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("memory.json");
    let settings = MirrorSettings { seed: 1, ..MirrorSettings::default() };
    let target = FakeTarget::new(1, 0);
    let start = || {
        let memory = MirrorMemory::open(&path).expect("a memory");
        (Mirror::start("m", target.clone(), settings.clone(), memory.clone()), memory)
    };
    let (mirror, _) = start();
    mirror.set_desired(desired(0..30, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 30).await;
    // A mistake in a rule removes most entries.
    mirror.set_desired(desired(0..3, 1));
    let request =
        wait_until(&mirror, |status| status.first_approval.is_some()).await.first_approval.expect("a pending approval");
    assert_eq!((request.names.len(), request.serving), (27, 30));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(target.lock().serving(), 30);
    mirror.stop().await;

    let (mirror, memory) = start();
    assert_eq!(memory.first_approvals()["m"], request, "before the first read");
    mirror.set_desired(desired(0..3, 1));
    assert_eq!(wait_until(&mirror, |status| status.settled).await.first_approval, Some(request.clone()));
    assert_eq!(target.lock().serving(), 30);
    let error = memory.approve("m", "abc").expect_err("another ID");
    assert!(error.to_string().contains(&request.id), "{error}");
    memory.approve("m", &request.id).expect("the pending approval");
    mirror.stop().await;

    // The removals were approved, but not applied before the process exited.
    let (mirror, _) = start();
    mirror.set_desired(desired(0..3, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    mirror.stop().await;

    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "no memory").expect("written");
    let error = MirrorMemory::open(&path).expect_err("a malformed file");
    assert!(error.to_string().contains("remove the file, and approve pending removals again"), "{error}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[tokio::test(start_paused = true)]
async fn unreachable_target_is_retried_with_backoff() {
    let target = FakeTarget::new(1, 100);
    let mirror = Mirror::start("m", target.clone(), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..3, 1));
    let status = wait_until(&mirror, |status| status.failing.is_some()).await;
    assert!(!status.settled);
    assert!(
        ["the target does not respond", "no response within 10s"]
            .contains(&status.failing.as_deref().unwrap_or_default()),
        "{status:?}"
    );
    sleep(Duration::from_secs(3600)).await;
    target.lock().failure_percent = 0;
    let started = Instant::now();
    wait_until(&mirror, |status| status.settled && status.entries == 3).await;
    assert!(started.elapsed() <= Duration::from_secs(70), "{:?}", started.elapsed());
}

/// Target that rejects one entry and accepts the others.
struct RejectingTarget(FakeTarget);

impl Target for RejectingTarget {
    type Value = TestValue;
    type Error = NoResponse;

    async fn read(&self) -> Result<ActualState<TestValue>, NoResponse> {
        self.0.read().await
    }

    async fn apply(&self, steps: &[Step<TestValue>]) -> Result<(), NoResponse> {
        let accepted: Vec<_> = steps.iter().filter(|step| step.name() != "13").cloned().collect();
        self.0.apply(&accepted).await?;
        if accepted.len() == steps.len() { Ok(()) } else { Err(NoResponse) }
    }

    fn describe(&self, found: &ActualState<TestValue>, steps: &[Step<TestValue>]) -> Vec<String> {
        self.0.describe(found, steps)
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_entry_delays_no_other() {
    let target = FakeTarget::new(1, 0);
    let mirror = Mirror::start("m", RejectingTarget(target.clone()), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(10..20, 1));
    let status = wait_until(&mirror, |status| status.entries == 9 && status.skipped.contains_key("13")).await;
    assert_eq!(status.skipped["13"], SkipReason::Rejected("the target does not respond".into()));
    assert!(matches!(status.state(), MirrorState::Blocked(reason) if reason.contains("13")));
    assert_eq!(status.failing, None);
    sleep(Duration::from_secs(600)).await;
    for round in 0..10 {
        let started = Instant::now();
        mirror.set_desired(desired((10..20).chain([100 + round]), 1));
        wait_until(&mirror, |_| target.lock().own.contains_key(&(100 + round).to_string())).await;
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

/// Target with an ownership record, and the result of claims. `None` for an error.
struct OwnedTarget(FakeTarget, Arc<Mutex<Option<ClaimResult>>>);

impl Target for OwnedTarget {
    type Value = TestValue;
    type Error = NoResponse;

    const HAS_OWNER_RECORD: bool = true;

    async fn read(&self) -> Result<ActualState<TestValue>, NoResponse> {
        self.0.read().await
    }

    async fn apply(&self, steps: &[Step<TestValue>]) -> Result<(), NoResponse> {
        self.0.apply(steps).await
    }

    fn describe(&self, found: &ActualState<TestValue>, steps: &[Step<TestValue>]) -> Vec<String> {
        self.0.describe(found, steps)
    }

    async fn claim(&self, _: &str, _: u64) -> Result<ClaimResult, NoResponse> {
        self.1.lock().clone().ok_or(NoResponse)
    }
}

#[tokio::test(start_paused = true)]
async fn second_process_with_mark_prevents_removal() {
    let target = FakeTarget::new(1, 0);
    target.lock().own.insert("theirs".to_owned(), TestValue(1));
    let claim = Arc::new(Mutex::new(Some(ClaimResult::Other { instance: "other".to_owned(), renewed: 0 })));
    let mirror = Mirror::start("m", OwnedTarget(target.clone(), claim.clone()), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..10, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 11 && status.other_process.is_some()).await;
    mirror.set_desired(desired(0..9, 1));
    let status = wait_until(&mirror, |status| status.settled && status.skipped.len() == 2).await;
    assert_eq!(status.skipped.values().collect::<BTreeSet<_>>().len(), 1);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(target.lock().own.len(), 11, "the mirror removes no entry");

    // The other process has exited. Its entries are removed, and entries of a third process stay.
    *claim.lock() = Some(ClaimResult::Ours);
    wait_until(&mirror, |status| status.settled && status.entries == 9).await;
    target.lock().own.insert("a third one's".to_owned(), TestValue(1));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(target.lock().own.len(), 10);
    assert_eq!(mirror.status().borrow().skipped["a third one's"], SkipReason::OtherProcess);
}

#[tokio::test(start_paused = true)]
async fn unreachable_target_permits_no_removal() {
    let target = FakeTarget::new(1, 100);
    target.lock().own.insert("theirs".to_owned(), TestValue(1));
    let claim = Arc::new(Mutex::new(None));
    let mirror = Mirror::start("m", OwnedTarget(target.clone(), claim.clone()), unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..10, 1));
    sleep(Duration::from_secs(31)).await;
    // The failed claims have shown nothing about other processes.
    target.lock().failure_percent = 0;
    wait_until(&mirror, |status| status.settled && status.entries == 11).await;
    *claim.lock() = Some(ClaimResult::Other { instance: "other".to_owned(), renewed: 0 });
    sleep(Duration::from_secs(600)).await;
    assert_eq!(target.lock().own.len(), 11, "another process holds the mark");
}

#[tokio::test(start_paused = true)]
async fn unwritable_owner_record_permits_removals() {
    let target = FakeTarget::new(1, 0);
    target.lock().own.insert("old".to_owned(), TestValue(1));
    let owned_target = OwnedTarget(target.clone(), Arc::default());
    let mirror = Mirror::start("m", owned_target, unlimited(), MirrorMemory::volatile());
    mirror.set_desired(desired(0..10, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 10).await;
}

#[tokio::test(start_paused = true)]
async fn rare_reads_do_not_delay_claims() {
    let claim = Arc::new(Mutex::new(Some(ClaimResult::Ours)));
    let owned_target = OwnedTarget(FakeTarget::new(1, 0), claim.clone());
    let settings = MirrorSettings { compare: Duration::from_secs(3600), ..unlimited() };
    let mirror = Mirror::start("m", owned_target, settings, MirrorMemory::volatile());
    mirror.set_desired(desired(0..10, 1));
    wait_until(&mirror, |status| status.settled && status.entries == 10).await;
    // The record expires after five minutes, so claims must be more frequent than reads.
    *claim.lock() = Some(ClaimResult::Other { instance: "other".to_owned(), renewed: 0 });
    let started = Instant::now();
    wait_until(&mirror, |status| status.other_process.is_some()).await;
    assert!(started.elapsed() <= Duration::from_secs(60), "{:?}", started.elapsed());
}

/// Target that counts attempts to record a term, and rejects the first three.
struct TermTarget(FakeTarget, Arc<Mutex<u32>>);

impl Target for TermTarget {
    type Value = TestValue;
    type Error = NoResponse;

    async fn read(&self) -> Result<ActualState<TestValue>, NoResponse> {
        self.0.read().await
    }

    async fn apply(&self, steps: &[Step<TestValue>]) -> Result<(), NoResponse> {
        self.0.apply(steps).await
    }

    fn describe(&self, found: &ActualState<TestValue>, steps: &[Step<TestValue>]) -> Vec<String> {
        self.0.describe(found, steps)
    }

    async fn record_term(&self, _: u64, _: u64) -> Result<bool, NoResponse> {
        let mut attempts = self.1.lock();
        *attempts += 1;
        if *attempts > 3 { Ok(true) } else { Err(NoResponse) }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_record_of_term_is_soon_repeated() {
    let (attempts, (keeper, gate)) = (Arc::<Mutex<u32>>::default(), TermKeeper::new());
    let term_target = TermTarget(FakeTarget::new(1, 0), attempts.clone());
    let settings = MirrorSettings { gate, ..unlimited() };
    let _mirror = Mirror::start("m", term_target, settings, MirrorMemory::volatile());
    keeper.open(Arc::new(UnlimitedTerm(7)));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*attempts.lock(), 4, "the term is recorded, and renewed later");
}
