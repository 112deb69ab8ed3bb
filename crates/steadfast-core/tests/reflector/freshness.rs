//! Freshness for readers as time passes without input.

use std::time::Duration;

use steadfast_core::fault_injection::FaultInjection;
use steadfast_core::freshness::{Evidence, FreshnessState};
use steadfast_core::{Freshness, Instant, KeySet, ObjectKey};

fn at(seconds: u64) -> Instant {
    Instant::from_zero(Duration::from_secs(seconds))
}

/// Creates evidence in `state` since 100 s, with a proof at 90 s.
fn evidence(state: FreshnessState) -> Evidence {
    Evidence {
        state,
        since: at(100),
        reason: "connection refused".into(),
        version: Some("9".into()),
        attempts: 2,
        next_attempt: Some(at(104)),
        proven: Some(at(90)),
        max_fresh_age: Duration::from_secs(120),
        stale_after: Duration::from_secs(10),
        tainted: KeySet::default(),
        needs_list: false,
        polled: None,
        faults: FaultInjection::NONE,
    }
}

fn describe(evidence: &Evidence, seconds: u64) -> String {
    evidence.at(at(seconds)).to_string()
}

#[test]
fn stream_without_proof_turns_stale_after_two_periods() {
    let evidence = evidence(FreshnessState::Streaming);
    assert_eq!(describe(&evidence, 100), "fresh, proven 10 s ago");
    assert_eq!(describe(&evidence, 210), "fresh, proven 120 s ago");
    let late = evidence.at(at(215));
    assert_eq!(late.name(), "stale");
    assert_eq!(late.doubt().map(|doubt| doubt.elapsed), Some(Duration::from_secs(5)));
}

#[test]
fn stream_without_any_proof_is_suspect() {
    let evidence = Evidence { proven: None, ..evidence(FreshnessState::Streaming) };
    assert_eq!(evidence.at(at(100)).name(), "suspect");
}

#[test]
fn resuming_turns_stale_at_the_earlier_bound() {
    let mut evidence = evidence(FreshnessState::Resuming);
    assert_eq!(
        describe(&evidence, 103),
        "resuming for 3.0 s: connection refused, proven 13 s ago, 2 attempts, next in 1.0 s"
    );
    assert_eq!(evidence.at(at(110)).name(), "resuming");
    assert_eq!(evidence.at(at(111)).name(), "stale");
    assert_eq!(evidence.at(at(111)).doubt().map(|doubt| doubt.elapsed), Some(Duration::from_secs(11)));
    evidence.proven = None;
    assert_eq!(evidence.at(at(105)).name(), "resuming");
    evidence.since = at(300);
    evidence.proven = Some(at(179));
    assert_eq!(evidence.at(at(301)).name(), "stale");
}

#[test]
fn suspect_stream_turns_stale_at_bound() {
    let evidence = evidence(FreshnessState::Suspect);
    assert_eq!(evidence.at(at(210)).name(), "suspect");
    let late = evidence.at(at(211));
    assert_eq!(late.name(), "stale");
    assert_eq!(
        late.doubt().map(|doubt| doubt.elapsed),
        Some(Duration::from_secs(111)),
        "the doubt must last since its first sign"
    );
    assert_eq!(late.doubt().and_then(|doubt| doubt.age), Some(Duration::from_secs(121)));
}

#[test]
fn cache_without_stream_is_never_fresh() {
    for (state, name) in [
        (FreshnessState::Starting, "starting"),
        (FreshnessState::Resuming, "resuming"),
        (FreshnessState::Suspect, "suspect"),
        (FreshnessState::Stale, "stale"),
        (FreshnessState::Failed, "failed"),
        (FreshnessState::Stopped, "stopped"),
    ] {
        let evidence = evidence(state);
        for seconds in [100, 101] {
            assert_eq!(evidence.at(at(seconds)).name(), name);
        }
        for seconds in [120, 1000, 100_000] {
            assert!(!evidence.at(at(seconds)).is_fresh());
        }
    }
}

#[test]
fn failed_and_stopped_never_change_state() {
    assert_eq!(evidence(FreshnessState::Failed).at(at(5000)).name(), "failed");
    assert_eq!(evidence(FreshnessState::Stopped).at(at(5000)).name(), "stopped");
    assert_eq!(evidence(FreshnessState::Starting).at(at(5000)).name(), "starting");
}

#[test]
fn freshness_contains_undecodable_keys() {
    let mut evidence = evidence(FreshnessState::Streaming);
    evidence.tainted = KeySet::from_iter([ObjectKey::namespaced("shop", "web")]);
    assert_eq!(describe(&evidence, 92), "fresh, proven 2.0 s ago, but shop/web cannot be decoded");
    evidence.tainted = ["web", "db"].map(|name| ObjectKey::namespaced("shop", name)).into_iter().collect();
    assert_eq!(describe(&evidence, 92), "fresh, proven 2.0 s ago, but shop/db and 1 more cannot be decoded");
}

#[test]
fn freshness_before_last_change_does_not_underflow() {
    let evidence = evidence(FreshnessState::Streaming);
    assert!(matches!(evidence.at(at(80)), Freshness::Fresh { age: Duration::ZERO, .. }));
}
