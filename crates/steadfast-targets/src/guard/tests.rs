use super::*;

const RULES: GuardRules = GuardRules {
    limits: Limits { share: 0.34, always_allowed: 1, window: Duration::from_mins(5) },
    allow_empty: false,
};

fn removals(range: std::ops::Range<usize>) -> BTreeMap<String, String> {
    range.map(|number| (format!("{number:03}"), "out".to_owned())).collect()
}

fn name_set(removals: &BTreeMap<String, String>) -> BTreeSet<String> {
    removals.keys().cloned().collect()
}

/// Judges one group that has `serving` in service and would lose `other_removals`.
fn decide_removals(
    guard: &mut Guard,
    serving: usize,
    other_removals: std::ops::Range<usize>,
    now: u64,
) -> (BTreeSet<String>, Option<ApprovalRequest>) {
    let flow = Flow { serving, other_removals: removals(other_removals), ..Flow::default() };
    let decision = guard.decide(RULES, &[("g".to_owned(), flow)].into(), &BTreeSet::new(), now);
    (decision.granted, guard.pending_approvals().next().cloned())
}

#[test]
fn loss_above_share_needs_approval() {
    assert_eq!(decide_removals(&mut Guard::default(), 100, 0..34, 0), (name_set(&removals(0..34)), None));
    let (granted, request) = decide_removals(&mut Guard::default(), 100, 0..35, 0);
    let request = request.expect("more than a third");
    assert!(granted.is_empty());
    assert_eq!((request.names.len(), request.serving, &*request.group), (35, 100, "g"));
}

#[test]
fn small_losses_add_up_in_window() {
    let mut guard = Guard::default();
    assert_eq!(decide_removals(&mut guard, 100, 0..20, 0).0.len(), 20);
    assert_eq!(decide_removals(&mut guard, 80, 20..34, 60).0.len(), 14);
    assert!(decide_removals(&mut guard, 66, 34..36, 120).1.is_some());
    // A hundred entries were in service more than five minutes ago.
    assert_eq!(decide_removals(&mut guard, 66, 34..36, 301).0.len(), 2);
}

#[test]
fn repeated_attempt_is_decided_alike() {
    let mut guard = Guard::default();
    for second in 0..400 {
        assert_eq!(decide_removals(&mut guard, 100, 0..30, second).0.len(), 30, "in second {second}");
    }
}

#[test]
fn few_entries_need_no_approval() {
    let other = |guard: &mut Guard, serving: usize| {
        let flow = Flow { serving, other_removals: removals(0..serving), ..Flow::default() };
        let others = Flow { serving: 10, ..Flow::default() };
        guard.decide(RULES, &[("g".to_owned(), flow), ("h".to_owned(), others)].into(), &BTreeSet::new(), 0).granted
    };
    assert_eq!(other(&mut Guard::default(), 1).len(), 1);
    assert!(other(&mut Guard::default(), 2).is_empty());
}

#[test]
fn approval_covers_only_named_entries() {
    let mut guard = Guard::default();
    let request = decide_removals(&mut guard, 100, 0..50, 0).1.expect("a pending approval");
    let error = guard.approve("00000000").expect_err("another ID");
    assert!(error.to_string().contains(&request.id), "{error}");
    assert_eq!(guard.approve(&request.id), Ok(request.clone()));

    let (granted, other) = decide_removals(&mut guard, 100, 0..90, 1);
    assert_eq!(granted, name_set(&removals(0..50)));
    let other = other.expect("forty more");
    assert_eq!(other.names.len(), 40);
    assert_ne!(other.id, request.id);
    // An entry that is desired again needs another approval.
    assert!(decide_removals(&mut guard, 100, 0..0, 2).0.is_empty());
    assert!(decide_removals(&mut guard, 100, 0..50, 3).0.is_empty());
}

#[test]
fn changed_removal_invalidates_approval() {
    let mut guard = Guard::default();
    let request = decide_removals(&mut guard, 10, 0..5, 0).1.expect("a pending approval");
    guard.approve(&request.id).expect("the approval is pending");
    let mut flow = Flow { serving: 10, other_removals: removals(0..5), ..Flow::default() };
    flow.other_removals.extend((0..3).map(|number| (format!("{number:03}"), "another address".to_owned())));
    let decision = guard.decide(RULES, &[("g".to_owned(), flow)].into(), &BTreeSet::new(), 1);
    assert_eq!(decision.granted, name_set(&removals(3..5)));
    assert_eq!(
        guard.pending_approvals().next().map(|request| request.names.clone()),
        Some(removals(0..3).into_keys().collect())
    );
}

#[test]
fn replacement_counts_once_it_is_seen() {
    let mut guard = Guard::default();
    let flow = |serving, starting, outs| {
        [("g".to_owned(), Flow { serving, starting, other_removals: removals(0..outs), ..Flow::default() })].into()
    };
    let uncertain = BTreeSet::new();
    // Five entries are replaced by five others: no approval is needed, and no entry is removed before the five are in
    // service.
    let decision = guard.decide(RULES, &flow(5, 5, 5), &uncertain, 0);
    assert_eq!((decision.granted.len(), guard.pending_approvals().count()), (0, 0));
    // Without the replacements, no entry is removed.
    let decision = guard.decide(RULES, &flow(5, 5, 5), &uncertain, 400);
    assert_eq!((decision.granted.len(), decision.replaced.len(), guard.pending_approvals().count()), (0, 5, 0));
    let decision = guard.decide(RULES, &flow(10, 0, 5), &uncertain, 401);
    assert_eq!((decision.granted.len(), guard.pending_approvals().count()), (5, 0));
    let mut guard = Guard::default();
    let flow = Flow { serving: 10, deleted: removals(0..5), ..Flow::default() };
    assert_eq!(guard.decide(RULES, &[("g".to_owned(), flow)].into(), &uncertain, 1).granted.len(), 5);
}

/// Flow of one group in which `starting` entries replace the first `outs` of `serving` entries.
fn replacement_flow(serving: usize, starting: usize, outs: usize) -> BTreeMap<String, Flow> {
    let flow = Flow { serving, starting, other_removals: removals(0..outs), ..Flow::default() };
    [("g".to_owned(), flow)].into()
}

#[test]
fn replacement_survives_takeover() {
    let mut guard = Guard::default();
    guard.decide(RULES, &replacement_flow(5, 5, 5), &BTreeSet::new(), 0);
    let exported = serde_json::to_string(&guard.durable_state()).expect("valid JSON");
    let mut guard: Guard = serde_json::from_str(&exported).expect("a guard");
    let decision = guard.decide(RULES, &replacement_flow(10, 0, 5), &BTreeSet::new(), 1);
    assert_eq!((decision.granted.len(), guard.pending_approvals().count()), (5, 0));
    // The removed entries leave no replacement in the file.
    guard.decide(RULES, &replacement_flow(5, 0, 0), &BTreeSet::new(), 2);
    assert_eq!(serde_json::to_string(&guard.durable_state()).ok(), serde_json::to_string(&Guard::default()).ok());
}

#[test]
fn replacement_survives_uncertain_pass() {
    let mut guard = Guard::default();
    guard.decide(RULES, &replacement_flow(5, 5, 5), &BTreeSet::new(), 0);
    let decision = guard.decide(RULES, &replacement_flow(10, 0, 0), &name_set(&removals(0..5)), 1);
    assert_eq!(decision, GuardDecision::default());
    let decision = guard.decide(RULES, &replacement_flow(10, 0, 5), &BTreeSet::new(), 2);
    assert_eq!((decision.granted.len(), guard.pending_approvals().count()), (5, 0));
}

#[test]
fn replacement_ends_when_entries_are_desired_again() {
    let mut guard = Guard::default();
    guard.decide(RULES, &replacement_flow(5, 5, 5), &BTreeSet::new(), 0);
    guard.decide(RULES, &replacement_flow(10, 0, 0), &BTreeSet::new(), 1);
    let decision = guard.decide(RULES, &replacement_flow(10, 0, 5), &BTreeSet::new(), 2);
    assert_eq!((decision.granted.len(), guard.pending_approvals().count()), (0, 1));
}

#[test]
fn guard_of_earlier_release_loads() {
    let text = r#"{"levels":{"g":[[0,5]]},"peaks":{"g":[[0,5]]},"approved":{},"asks":{}}"#;
    let guard: Guard = serde_json::from_str(text).expect("a guard");
    assert_eq!(serde_json::to_string(&guard).expect("valid JSON"), text);
}

#[test]
fn uncertainty_keeps_pending_and_given_approvals() {
    let mut guard = Guard::default();
    let request = decide_removals(&mut guard, 100, 0..50, 0).1.expect("a pending approval");
    let uncertain = name_set(&removals(0..50));
    let flow = || [("g".to_owned(), Flow { serving: 100, ..Flow::default() })].into();
    guard.decide(RULES, &flow(), &uncertain, 1);
    assert_eq!(guard.pending_approvals().next(), Some(&request));
    guard.approve(&request.id).expect("the approval is still pending");
    guard.decide(RULES, &flow(), &uncertain, 2);
    assert_eq!(decide_removals(&mut guard, 100, 0..50, 3).0.len(), 50);
}

#[test]
fn memory_survives_a_restart() {
    let mut guard = Guard::default();
    assert_eq!(decide_removals(&mut guard, 100, 0..30, 0).0.len(), 30);
    let request = decide_removals(&mut guard, 70, 30..60, 1).1.expect("sixty of a hundred");
    let reload = |guard: &Guard| -> Guard {
        serde_json::from_str(&serde_json::to_string(guard).expect("valid JSON")).expect("a guard")
    };

    let mut guard = reload(&guard);
    assert_eq!(guard.pending_approvals().next(), Some(&request));
    assert_eq!(decide_removals(&mut guard, 70, 30..60, 2).1, Some(request.clone()));
    assert!(guard.approve(&request.id).is_ok());
    assert_eq!(decide_removals(&mut reload(&guard), 70, 30..60, 3).0, name_set(&removals(30..60)));
}

#[test]
fn clock_set_back_discards_later_losses() {
    let mut guard = Guard::default();
    assert_eq!(decide_removals(&mut guard, 100, 0..30, 1_000_000).0.len(), 30);
    assert_eq!(decide_removals(&mut guard, 70, 30..50, 1_000).0.len(), 20);
}

#[test]
fn memory_of_changing_numbers_is_bounded() {
    let mut guard = Guard::default();
    for count in (0..5000).rev() {
        let flow = Flow { serving: count, ..Flow::default() };
        guard.decide(RULES, &[("g".to_owned(), flow)].into(), &BTreeSet::new(), 0);
    }
    assert!(guard.levels["g"].len() <= MAX_LEVELS);
    assert_eq!(guard.levels["g"][0].1, 4999);
    // A group at its peak is not recorded on disk.
    let flow = Flow { serving: 5000, ..Flow::default() };
    guard.decide(RULES, &[("g".to_owned(), flow)].into(), &BTreeSet::new(), 1);
    assert_eq!(guard.durable_state(), Guard::default());
}

#[test]
fn id_differs_between_removals() {
    let ids: BTreeSet<String> = [("g", "a", "1"), ("g", "a", "2"), ("g", "a1", ""), ("ga", "1", ""), ("", "ga", "1")]
        .map(|(group, name, text)| approval_id(group, &[(name.to_owned(), text.to_owned())].into()))
        .into();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| id.len() == 32));
}

#[test]
fn gradual_group_loss_needs_approval() {
    let mut guard = Guard::default();
    let mut granted_removals = |serving: usize, deleted_count: usize, now: u64| {
        let flow = Flow { serving, deleted: removals(0..deleted_count), ..Flow::default() };
        let others = Flow { serving: 10, ..Flow::default() };
        let flows = [("g".to_owned(), flow), ("h".to_owned(), others)].into();
        guard.decide(RULES, &flows, &BTreeSet::new(), now).granted.len()
    };
    assert_eq!(granted_removals(3, 0, 0), 0);
    assert_eq!((granted_removals(3, 1, 1), granted_removals(2, 1, 2)), (1, 1));
    assert_eq!(granted_removals(1, 1, 3), 0, "three were in service within the window");
    assert_eq!(granted_removals(1, 1, 400), 1, "one was in service within the window");
}
