//! For each bound of the contract, a library or a server with an injected fault must fail the scenario that checks the
//! bound. This proves that each check can fail.

use std::time::Duration;

use steadfast::{BackoffSettings, InjectedFault};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_testing::TestkitError;
use steadfast_testing::scenarios::{ScenarioTarget, catalog};

use crate::run_scenario;

/// Longer than any bound.
const UNREACHABLE_TIME: Duration = Duration::from_secs(900);

/// A bound, the scenario that checks it, the injected fault, and the expected problem.
struct BrokenCase {
    bound: &'static str,
    scenario: &'static str,
    break_target: fn(ScenarioTarget) -> ScenarioTarget,
    expected_problem: &'static str,
}

const BROKEN_CASES: &[BrokenCase] = &[
    BrokenCase {
        bound: "R1: a connection without pings",
        scenario: "black-hole",
        break_target: |target| {
            target.with_adjusted_settings(|settings| {
                settings.transport.ping_after = UNREACHABLE_TIME;
                settings.transport.probe_after = UNREACHABLE_TIME;
            })
        },
        expected_problem: "the first doubt",
    },
    BrokenCase {
        bound: "R2a: no probe on a silent connection",
        scenario: "frozen-server",
        break_target: |target| {
            target.with_adjusted_settings(|settings| settings.transport.probe_after = UNREACHABLE_TIME)
        },
        expected_problem: "the first doubt",
    },
    BrokenCase {
        bound: "R2: no proof is requested",
        scenario: "frozen-etcd",
        break_target: |target| target.with_adjusted_settings(|settings| settings.reflector.period = UNREACHABLE_TIME),
        expected_problem: "the first doubt",
    },
    BrokenCase {
        bound: "R2: always fresh",
        scenario: "frozen-etcd",
        break_target: |target| target.with_injected_fault(InjectedFault::AlwaysFresh),
        expected_problem: "the first doubt did not happen",
    },
    BrokenCase {
        bound: "R2: a stalled stream is not replaced",
        scenario: "stalled-stream",
        break_target: |target| target.with_adjusted_settings(|settings| settings.reflector.period = UNREACHABLE_TIME),
        expected_problem: "the recovery",
    },
    BrokenCase {
        bound: "R3: no timeout for a list that never ends",
        scenario: "streamed-list-broken",
        break_target: |target| {
            target.with_adjusted_settings(|settings| settings.reflector.list_stall_timeout = UNREACHABLE_TIME)
        },
        expected_problem: "the recovery did not happen",
    },
    BrokenCase {
        bound: "R4: a list although a watch could resume",
        scenario: "events-repeated",
        break_target: |target| target.with_injected_fault(InjectedFault::ForgottenVersion),
        expected_problem: "full transfers",
    },
    BrokenCase {
        bound: "R5: deletions that a relist does not report",
        scenario: "version-expired",
        break_target: |target| target.with_injected_fault(InjectedFault::LostDeletes),
        expected_problem: "C2",
    },
    BrokenCase {
        bound: "R5, C4: an older list from a lagging replica",
        scenario: "time-travel",
        break_target: |target| target.with_injected_fault(InjectedFault::OlderList),
        expected_problem: "C4",
    },
    BrokenCase {
        bound: "R6: attempts without a backoff",
        scenario: "no-spin",
        break_target: |target| {
            target.with_adjusted_settings(|settings| {
                let wait = Duration::from_millis(5);
                settings.reflector.backoff =
                    BackoffSettings { initial_delay: wait, second_delay: wait, max_delay: wait };
            })
        },
        expected_problem: "attempts in four seconds",
    },
    BrokenCase {
        bound: "R7: a server that delays one resource for another",
        scenario: "resource-refused",
        break_target: |target| {
            target.with_server_fault(|server| {
                let lists =
                    RequestRule::any().resource("configmaps").verb(Verb::StreamedList).verb(Verb::List).times(1);
                server.faults().respond(lists, InjectedResponse::retry_after(503, Duration::from_secs(5)));
            })
        },
        expected_problem: "the sync of config maps",
    },
    BrokenCase {
        bound: "R8: records that are dropped because of an undecodable one",
        scenario: "frames-split",
        break_target: |target| target.with_injected_fault(InjectedFault::DroppedRecords),
        expected_problem: "C11",
    },
    BrokenCase {
        bound: "R10: idle connections that are kept",
        scenario: "idle-after-shutdown",
        break_target: |target| {
            target.with_adjusted_settings(|settings| settings.transport.idle_timeout = UNREACHABLE_TIME)
        },
        expected_problem: "the end of the idle connections",
    },
    BrokenCase {
        bound: "R11: Retry-After is ignored",
        scenario: "server-busy",
        break_target: |target| target.with_injected_fault(InjectedFault::IgnoredRetryAfter),
        expected_problem: "with a Retry-After of",
    },
];

#[test]
fn each_broken_bound_fails_its_scenario() -> Result<(), TestkitError> {
    let mut undetected_bounds = Vec::new();
    for BrokenCase { bound, scenario, break_target, expected_problem } in BROKEN_CASES {
        let scenario = catalog::named(scenario).ok_or_else(|| format!("unknown scenario {scenario:?}"))?;
        // The tests of each fault show that the unmodified library passes with this seed.
        let problems = match run_scenario(scenario, break_target(ScenarioTarget::in_memory(7))) {
            Ok(findings) => findings.problems(),
            Err(error) => vec![error.to_string()],
        };
        if !problems.iter().any(|problem| problem.contains(expected_problem)) {
            println!("{bound}: {problems:#?}");
            undetected_bounds.push(bound);
        }
    }
    assert_eq!(undetected_bounds, [&""; 0], "these faults were not detected by their scenarios");
    Ok(())
}
