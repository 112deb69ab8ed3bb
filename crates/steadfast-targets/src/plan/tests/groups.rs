//! Histories of groups that share one mirror: objects are added, removed, flap and fail, clusters become stale, and the
//! target loses everything. Each property of a group holds independently of the other groups.

use fastrand::Rng;

use super::*;
use crate::origin::{ExistenceCheck, ObjectId, UncertainOrigins};

/// The last group always has one object, so that the mirror is never empty.
const GROUPS: [&str; 4] = ["a", "b", "c", "z"];

/// An object of a group in the simulated cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    uid: u32,
    is_ready: bool,
}

/// Clusters with their entries. Each group has its own cluster; all clusters have one name.
struct SourceState {
    objects: BTreeMap<(usize, String), Object>,
    stale: BTreeSet<usize>,
    failing: BTreeSet<(usize, String)>,
    last_uid: u32,
}

fn origin(group: usize, name: &str, uid: u32) -> Arc<Origin> {
    let group = GROUPS[group].to_owned();
    let object = ObjectId { cluster: group.clone(), name: name.to_owned(), ..ObjectId::default() };
    Arc::new(Origin { group, object, uid: uid.to_string() })
}

impl SourceState {
    fn desired(&self, is_prefixed: bool) -> DesiredState<Backend> {
        let mut desired = DesiredState::default();
        for ((group, name), object) in &self.objects {
            if self.failing.contains(&(*group, name.clone())) {
                continue;
            }
            let entry = if is_prefixed { format!("{}-{name}", GROUPS[*group]) } else { name.clone() };
            let (value, origin) =
                (Backend { location: 0, weight: u8::from(object.is_ready) }, origin(*group, name, object.uid));
            if desired.entries.contains_key(&entry) {
                desired.competing.push(crate::CompetingEntry { name: entry, value, origin });
            } else {
                desired.entries.insert(entry.clone(), value);
                desired.origins.insert(entry, origin);
            }
        }
        let clusters = self.stale.iter().map(|group| (GROUPS[*group].to_owned(), Arc::from("stale"))).collect();
        let failing =
            self.failing.iter().map(|(group, name)| (origin(*group, name, 0).object.clone(), Arc::from("fails")));
        let sources = GROUPS.map(str::to_owned).into();
        desired.uncertain_origins =
            UncertainOrigins { sources, clusters, objects: failing.collect(), ..UncertainOrigins::default() };
        let objects = self.objects.clone();
        desired.exists = Some(ExistenceCheck::new(move |origin| {
            let group = GROUPS.iter().position(|group| *group == origin.group)?;
            let object = objects.get(&(group, origin.object.name.clone()));
            Some(object.is_some_and(|object| object.uid.to_string() == origin.uid))
        }));
        desired
    }
}

/// Mirror that makes and applies one plan at a time, with the state that it keeps between plans.
struct SimulatedMirror {
    record: MirrorRecord,
    draining: DrainState,
    found: ActualState<Backend>,
    started: Instant,
    seconds: u64,
}

impl SimulatedMirror {
    fn new() -> Self {
        let found = ActualState { own: BTreeMap::new(), others: BTreeSet::new(), busy: BTreeSet::new() };
        let (record, draining) = (MirrorRecord::default(), DrainState::default());
        Self { record, draining, found, started: Instant::now(), seconds: 0 }
    }

    fn reconcile(&mut self, desired: &DesiredState<Backend>, plan_settings: &PlanSettings) -> Plan<Backend> {
        let now = PlanTime {
            unix_seconds: 1_000_000 + self.seconds,
            instant: self.started + Duration::from_secs(self.seconds),
        };
        let plan = plan(desired, &self.found, &accept_all, plan_settings, (&mut self.record, &mut self.draining), now);
        self.found = apply_steps(&self.found, &steps(&plan));
        plan
    }

    fn serving(&self, group: &str) -> usize {
        let is_of = |name: &String| name.starts_with(&format!("{group}-"));
        self.found.own.iter().filter(|(name, current)| is_of(name) && current.serves()).count()
    }
}

/// Runs one history. With `has_misbehaving_group`, the third group behaves at random; otherwise the group is idle.
fn simulate_history(seed: u64, has_misbehaving_group: bool) -> Vec<BTreeMap<String, Backend>> {
    let (mut rng, mut misbehaving_rng) = (Rng::with_seed(seed), Rng::with_seed(!seed));
    let mut source =
        SourceState { objects: BTreeMap::new(), stale: BTreeSet::new(), failing: BTreeSet::new(), last_uid: 0 };
    let mut mirror = SimulatedMirror::new();
    source.objects.insert((3, "0".to_owned()), Object { uid: 0, is_ready: true });
    let (plan_settings, mut states) = (plan_settings(1.0 / 3.0, false), Vec::new());
    for _ in 0..60 {
        // The UIDs of the others do not depend on the misbehaving group.
        let uid = source.last_uid + 1;
        source.last_uid = uid;
        change_source(&mut source, &mut rng, 0..2, uid);
        if has_misbehaving_group {
            change_source(&mut source, &mut misbehaving_rng, 2..3, 1_000_000 + uid);
            change_source(&mut source, &mut misbehaving_rng, 2..3, 2_000_000 + uid);
        }
        if rng.u32(0..20) == 0 {
            mirror.found.own.clear();
        }
        let before: Vec<usize> = GROUPS.iter().map(|group| mirror.serving(group)).collect();
        let is_stale = |group: usize| source.stale.contains(&group);
        let mut desired = source.desired(true);
        // At the start of a term, a cluster can be held back. It is then in doubt, too. The last group must not be held
        // back: without its entry, the mirror could become empty.
        let held_group = Some((seed + mirror.seconds) as usize % 8).filter(|group| *group < GROUPS.len() - 1);
        if let Some(group) = held_group {
            desired.uncertain_origins.held_back.insert(GROUPS[group].to_owned());
            desired.uncertain_origins.clusters.insert(GROUPS[group].to_owned(), "held back".into());
        }
        let plan = mirror.reconcile(&desired, &plan_settings);
        for step in steps(&plan) {
            let is_held = held_group.is_some_and(|group| step.name().starts_with(&format!("{}-", GROUPS[group])));
            assert!(!is_held, "seed {seed}: {step:?} concerns a group that is held back");
        }
        for (number, group) in GROUPS.iter().enumerate() {
            let is_deleted = |name: &str| {
                desired.exists.as_ref().and_then(|exists| exists.check(mirror.record.origin(name)?)) == Some(false)
            };
            let is_lost = |step: &&Step<Backend>| {
                matches!(step, Step::Change { name, from, to }
                    if name.starts_with(group) && from.serves() && !to.serves() && !is_deleted(name))
            };
            let lost = plan.removals.iter().filter(is_lost);
            let lost = lost.count();
            assert!(lost == 0 || !is_stale(number), "seed {seed}: {group} is stale and loses {lost}");
            let max_lost = (before[number] / 3).max(1);
            // Granted removals within the window: at most a third of the peak.
            assert!(lost <= max_lost.max(3), "seed {seed}: {group} loses {lost} of {}", before[number]);
        }
        mirror.seconds += rng.u64(1..90);
        states.push(
            mirror
                .found
                .own
                .iter()
                .filter(|(name, _)| !name.starts_with("c-"))
                .map(|(name, current)| (name.clone(), *current))
                .collect(),
        );
    }
    states
}

fn change_source(source: &mut SourceState, rng: &mut Rng, groups: std::ops::Range<usize>, uid: u32) {
    let key = (rng.usize(groups.clone()), rng.u32(0..9).to_string());
    match rng.u32(0..12) {
        0..4 => _ = source.objects.insert(key, Object { uid, is_ready: true }),
        4..6 => _ = source.objects.remove(&key),
        6..8 => {
            if let Some(object) = source.objects.get_mut(&key) {
                object.is_ready = !object.is_ready;
            }
        }
        8 => source.objects.retain(|(group, _), _| *group != key.0 || rng.bool()),
        9 => {
            if !source.stale.remove(&key.0) {
                source.stale.insert(key.0);
            }
        }
        10 => {
            if !source.failing.remove(&key) {
                source.failing.insert(key);
            }
        }
        _ => source.objects.values_mut().for_each(|object| _ = object),
    }
}

#[test]
fn group_misbehaving_changes_nothing_for_others() {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let (alone, next_to_it) = (simulate_history(seed, false), simulate_history(seed, true));
        for (step, (alone, next_to_it)) in alone.iter().zip(&next_to_it).enumerate() {
            // An empty mirror would need approval, and the misbehaving group's entries may prevent an empty mirror.
            let is_same = alone == next_to_it;
            assert!(is_same, "seed {seed}, step {step}:\n{alone:?}\n{next_to_it:?}");
        }
    }
}

fn add_ready_objects(source: &mut SourceState, group: usize, names: std::ops::Range<u32>) {
    for name in names {
        source.last_uid += 1;
        source.objects.insert((group, format!("{name:02}")), Object { uid: source.last_uid, is_ready: true });
    }
}

fn source() -> SourceState {
    SourceState { objects: BTreeMap::new(), stale: BTreeSet::new(), failing: BTreeSet::new(), last_uid: 0 }
}

#[test]
fn rolling_update_needs_no_approval() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..10);
    mirror.reconcile(&source.desired(true), &plan_settings);
    for old in 0..10 {
        add_ready_objects(&mut source, 0, 10 + old..11 + old);
        mirror.reconcile(&source.desired(true), &plan_settings);
        source.objects.remove(&(0, format!("{old:02}")));
        for _ in 0..3 {
            let plan = mirror.reconcile(&source.desired(true), &plan_settings);
            assert!(plan.approvals.is_empty(), "{:?}", plan.approvals);
        }
        mirror.seconds += 2;
        assert_eq!(mirror.serving("a"), 10);
    }
    assert_eq!(mirror.found.own.len(), 10);
}

#[test]
fn partial_scale_down_needs_no_approval() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..10);
    add_ready_objects(&mut source, 1, 0..1);
    mirror.reconcile(&source.desired(true), &plan_settings);
    source.objects.retain(|(_, name), _| name.as_str() < "03");
    assert!(mirror.reconcile(&source.desired(true), &plan_settings).approvals.is_empty());
    assert_eq!(mirror.serving("a"), 3);
    // One of three entries is not ready. The guard compares with three entries, not with the earlier ten.
    source.objects.get_mut(&(0, "00".to_owned())).expect("the object exists").is_ready = false;
    assert!(mirror.reconcile(&source.desired(true), &plan_settings).approvals.is_empty());
    assert_eq!(mirror.serving("a"), 2);
    // Removing all entries of a group at once exceeds `always_allowed`, although their objects were deleted.
    source.objects.retain(|(group, _), _| *group != 0);
    let requests = mirror.reconcile(&source.desired(true), &plan_settings).approvals;
    assert_eq!((requests.len(), &*requests[0].group, requests[0].names.len()), (1, "a", 2));
    // The only entry of a group may be removed; the last entry of the mirror may not.
    source.objects.clear();
    mirror.reconcile(&source.desired(true), &plan_settings);
    assert_eq!((mirror.serving("a"), mirror.serving("b")), (2, 0));
}

#[test]
fn last_entry_of_mirror_needs_approval() {
    let (mut source, mut mirror, strict) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..1);
    mirror.reconcile(&source.desired(true), &strict);
    source.objects.clear();
    let requests = mirror.reconcile(&source.desired(true), &strict).approvals;
    assert_eq!((requests.len(), mirror.serving("a")), (1, 1));
    mirror.record.guard.approve(&requests[0].id).expect("a pending approval");
    mirror.reconcile(&source.desired(true), &strict);
    assert_eq!(mirror.serving("a"), 0);

    let (mut mirror, lax) = (SimulatedMirror::new(), plan_settings(1.0 / 3.0, true));
    add_ready_objects(&mut source, 0, 0..1);
    mirror.reconcile(&source.desired(true), &lax);
    source.objects.clear();
    assert!(mirror.reconcile(&source.desired(true), &lax).approvals.is_empty());
    assert_eq!(mirror.serving("a"), 0);
}

#[test]
fn mass_unreadiness_needs_group_approval() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..9);
    add_ready_objects(&mut source, 1, 0..9);
    mirror.reconcile(&source.desired(true), &plan_settings);
    for ((group, name), object) in &mut source.objects {
        object.is_ready = !(*group == 0 && name.as_str() < "05" || *group == 1 && name.as_str() < "02");
    }
    let requests = mirror.reconcile(&source.desired(true), &plan_settings).approvals;
    assert_eq!(
        requests.iter().map(|request| (&*request.group, request.names.len(), request.serving)).collect::<Vec<_>>(),
        [("a", 5, 9)]
    );
    assert_eq!((mirror.serving("a"), mirror.serving("b")), (9, 7));
}

#[test]
fn flapping_readiness_stays_within_share() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..99);
    mirror.reconcile(&source.desired(true), &plan_settings);
    let mut flap = |mirror: &mut SimulatedMirror, out: std::ops::Range<usize>, seconds: u64| {
        for (number, object) in source.objects.values_mut().enumerate() {
            object.is_ready = !out.contains(&number);
        }
        mirror.reconcile(&source.desired(true), &plan_settings);
        mirror.reconcile(&source.desired(true), &plan_settings);
        mirror.seconds += seconds;
        mirror.serving("a")
    };
    assert_eq!(flap(&mut mirror, 0..33, 1), 66);
    assert_eq!(flap(&mut mirror, 0..0, 298), 99);
    assert_eq!(flap(&mut mirror, 0..33, 3), 66);
    assert_eq!(flap(&mut mirror, 0..55, 3), 66);
    assert_eq!(flap(&mut mirror, 22..55, 3), 66);
}

/// Eight entries of existing objects. The `suffix` of their names is their address.
fn addressed_entries(suffix: &str) -> DesiredState<Backend> {
    let mut desired = DesiredState::default();
    for number in 0..8 {
        let name = format!("a-{number} {suffix}");
        desired.origins.insert(name.clone(), origin(0, &number.to_string(), 1));
        desired.entries.insert(name, Backend { location: 0, weight: 1 });
    }
    desired.exists = Some(ExistenceCheck::new(|_| Some(true)));
    desired
}

#[test]
fn moved_addresses_survive_doubt_and_takeover() {
    let (mut mirror, plan_settings) = (SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    mirror.reconcile(&addressed_entries("old"), &plan_settings);
    mirror.reconcile(&addressed_entries("new"), &plan_settings);
    assert_eq!(mirror.serving("a"), 16);
    let uncertain = DesiredState { doubt: Some(Arc::from("stale")), ..addressed_entries("new") };
    for _ in 0..2 {
        let plan = mirror.reconcile(&uncertain, &plan_settings);
        assert_eq!(plan.skipped.len(), 8);
        assert!(plan.skipped.values().all(|reason| *reason == SkipReason::Doubt), "{:?}", plan.skipped);
        // A new leader continues with the exported state of the guard.
        mirror.record.guard = mirror.record.guard.durable_state();
    }
    for _ in 0..3 {
        let plan = mirror.reconcile(&addressed_entries("new"), &plan_settings);
        assert!(plan.approvals.is_empty(), "{:?}", plan.approvals);
    }
    assert_eq!(mirror.found.own.len(), 8);
    assert!(mirror.found.own.keys().all(|name| name.ends_with("new")), "{:?}", mirror.found.own);
}

#[test]
fn moved_addresses_need_no_approval() {
    let (mut mirror, plan_settings) = (SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    let desired = addressed_entries;
    mirror.reconcile(&desired("old"), &plan_settings);
    for _ in 0..4 {
        let plan = mirror.reconcile(&desired("new"), &plan_settings);
        assert!(plan.approvals.is_empty(), "{:?}", plan.approvals);
        assert!(mirror.serving("a") >= 8);
    }
    assert!(mirror.found.own.keys().all(|name| name.ends_with("new")), "{:?}", mirror.found.own);
    // Recovery, then a loss of half: five of eight are in service.
    let mut half = desired("old");
    half.entries.retain(|name, _| name.as_str() < "a-4");
    for _ in 0..3 {
        assert_eq!(mirror.reconcile(&half, &plan_settings).approvals.len(), 1);
    }
}

#[test]
fn contested_entry_stays_with_holder() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 1, 0..3);
    mirror.reconcile(&source.desired(false), &plan_settings);
    // A group that sorts first claims the names, while the holder's objects are not ready.
    add_ready_objects(&mut source, 0, 0..3);
    source.objects.get_mut(&(1, "00".to_owned())).expect("the object exists").is_ready = false;
    let plan = mirror.reconcile(&source.desired(false), &plan_settings);
    let conflict = |name: &str| matches!(&plan.skipped[name], SkipReason::Conflict(conflict) if conflict.holder == "b");
    assert!(["00", "01", "02"].into_iter().all(conflict), "{:?}", plan.skipped);
    let holders = |mirror: &SimulatedMirror| {
        mirror.record.entries().map(|(_, held)| held.origin.group.clone()).collect::<Vec<_>>()
    };
    assert_eq!(holders(&mirror), ["b", "b", "b"]);
    // The target was restarted, and the holder's cluster is stale: the holder keeps its names.
    mirror.found.own.clear();
    source.stale.insert(1);
    mirror.reconcile(&source.desired(false), &plan_settings);
    assert_eq!(holders(&mirror), ["b", "b", "b"]);
    // The holder releases one name.
    source.stale.clear();
    source.objects.remove(&(1, "02".to_owned()));
    for _ in 0..4 {
        mirror.reconcile(&source.desired(false), &plan_settings);
        mirror.seconds += 60;
    }
    assert_eq!(holders(&mirror), ["b", "b", "a"]);
}

#[test]
fn failing_object_keeps_only_its_entry() {
    let (mut source, mut mirror, plan_settings) = (source(), SimulatedMirror::new(), plan_settings(1.0 / 3.0, false));
    add_ready_objects(&mut source, 0, 0..4);
    mirror.reconcile(&source.desired(true), &plan_settings);
    source.failing.insert((0, "00".to_owned()));
    source.objects.remove(&(0, "01".to_owned()));
    for _ in 0..3 {
        let plan = mirror.reconcile(&source.desired(true), &plan_settings);
        assert_eq!(plan.skipped.get("a-00"), Some(&SkipReason::Doubt));
        assert_eq!(plan.uncertain.as_deref(), Some("fails"));
    }
    assert_eq!(mirror.found.own.keys().collect::<Vec<_>>(), ["a-00", "a-02", "a-03"]);
}

#[test]
fn invalid_entry_affects_only_itself() {
    let desired =
        DesiredState::new(["a", "b", "c"].map(|name| (name.to_owned(), Backend { location: 0, weight: 1 })).into());
    let own = [("a", 1), ("b", 0), ("old", 0)].map(|(name, weight)| (name.to_owned(), Backend { location: 1, weight }));
    let found = ActualState { own: own.into(), others: BTreeSet::new(), busy: BTreeSet::new() };
    let validate = |values: &mut BTreeMap<String, Backend>| {
        values.remove("b");
        BTreeMap::from([("b".to_owned(), "the name is too long".to_owned())])
    };
    let (mut record, mut draining) = (MirrorRecord::default(), DrainState::default());
    let now = PlanTime { unix_seconds: 0, instant: Instant::now() };
    let plan = plan(&desired, &found, &validate, &plan_settings(0.3, false), (&mut record, &mut draining), now);
    assert_eq!(steps(&plan).iter().map(Step::name).collect::<Vec<_>>(), ["a", "c", "old"]);
    assert_eq!(plan.skipped["b"].to_string(), "the name is too long");
}

#[test]
fn held_back_claim_keeps_its_entry() {
    let value = |weight| Backend { location: 0, weight };
    let mut mirror = SimulatedMirror::new();
    let settings = plan_settings(1.0, true);
    // Two clusters provide the entry, in one group. The first one takes precedence.
    let claim = |cluster: &str| {
        let object = ObjectId { cluster: cluster.to_owned(), ..ObjectId::default() };
        Arc::new(Origin { group: "g".to_owned(), object, uid: String::new() })
    };
    let mut desired = DesiredState {
        entries: [("k".to_owned(), value(1))].into(),
        origins: [("k".to_owned(), claim("east"))].into(),
        competing: vec![crate::CompetingEntry { name: "k".to_owned(), value: value(2), origin: claim("west") }],
        ..DesiredState::default()
    };
    mirror.reconcile(&desired, &settings);
    assert_eq!(mirror.found.own["k"], value(1));
    desired.entries.insert("k".to_owned(), value(3));
    desired.uncertain_origins.held_back.insert("east".to_owned());
    let plan = mirror.reconcile(&desired, &settings);
    assert_eq!((steps(&plan), plan.skipped.get("k")), (Vec::new(), Some(&SkipReason::Doubt)));
    desired.uncertain_origins.held_back.clear();
    mirror.reconcile(&desired, &settings);
    assert_eq!(mirror.found.own["k"], value(3));
}

#[test]
fn removal_waits_for_held_back_replacement() {
    let (mut mirror, settings) = (SimulatedMirror::new(), plan_settings(1.0 / 3.0, true));
    // The group spans both clusters, and its only object moves from one to the other.
    let entry_of = |cluster: &str, name: &str| {
        let object = ObjectId { cluster: cluster.to_owned(), name: name.to_owned(), ..ObjectId::default() };
        let origin = Arc::new(Origin { group: "g".to_owned(), object, uid: String::new() });
        let mut desired = DesiredState::new([(name.to_owned(), Backend { location: 0, weight: 1 })].into());
        desired.origins.insert(name.to_owned(), origin);
        desired.uncertain_origins.sources = ["east", "west"].map(str::to_owned).into();
        desired
    };
    mirror.reconcile(&entry_of("east", "old"), &settings);
    let mut moved = entry_of("west", "new");
    moved.uncertain_origins.clusters.insert("west".to_owned(), "held back".into());
    moved.uncertain_origins.held_back.insert("west".to_owned());
    let plan = mirror.reconcile(&moved, &settings);
    assert_eq!((steps(&plan), plan.skipped.get("old")), (Vec::new(), Some(&SkipReason::AwaitsReplacement)));
    for _ in 0..3 {
        mirror.reconcile(&entry_of("west", "new"), &settings);
        assert!(mirror.found.own.values().any(Backend::serves));
    }
    assert_eq!(mirror.found.own.keys().collect::<Vec<_>>(), ["new"]);
}
