//! For each bound of the contract, a library or a server with an injected fault must fail the scenario that checks the
//! bound. This proves that each check can fail.

use std::time::Duration;

use steadfast::{BackoffSettings, InjectedFault};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_testing::Error;
use steadfast_testing::scenarios::{Target, catalog};

use crate::play;

/// Longer than any bound.
const TOO_LONG: Duration = Duration::from_secs(900);

/// A bound, the scenario that checks it, the injected fault, and the expected problem.
struct Broken {
    bound: &'static str,
    scenario: &'static str,
    how: fn(Target) -> Target,
    said: &'static str,
}

const BROKEN: &[Broken] = &[
    Broken {
        bound: "R1: a connection without pings",
        scenario: "black-hole",
        how: |target| {
            target.adjusting(|plan| {
                plan.transport.ping_after = TOO_LONG;
                plan.transport.probe_after = TOO_LONG;
            })
        },
        said: "the first doubt",
    },
    Broken {
        bound: "R2a: no probe on a silent connection",
        scenario: "frozen-server",
        how: |target| target.adjusting(|plan| plan.transport.probe_after = TOO_LONG),
        said: "the first doubt",
    },
    Broken {
        bound: "R2: no proof is requested",
        scenario: "frozen-etcd",
        how: |target| target.adjusting(|plan| plan.reflector.period = TOO_LONG),
        said: "the first doubt",
    },
    Broken {
        bound: "R2: always fresh",
        scenario: "frozen-etcd",
        how: |target| target.with_injected_fault(InjectedFault::AlwaysFresh),
        said: "the first doubt did not happen",
    },
    Broken {
        bound: "R2: a stalled stream is not replaced",
        scenario: "stalled-stream",
        how: |target| target.adjusting(|plan| plan.reflector.period = TOO_LONG),
        said: "the recovery",
    },
    Broken {
        bound: "R3: no timeout for a list that never ends",
        scenario: "streamed-list-broken",
        how: |target| target.adjusting(|plan| plan.reflector.list_stall_timeout = TOO_LONG),
        said: "the recovery did not happen",
    },
    Broken {
        bound: "R4: a list although a watch could resume",
        scenario: "events-repeated",
        how: |target| target.with_injected_fault(InjectedFault::ForgottenVersion),
        said: "full transfers",
    },
    Broken {
        bound: "R5: deletions that a relist does not report",
        scenario: "version-expired",
        how: |target| target.with_injected_fault(InjectedFault::LostDeletes),
        said: "C2",
    },
    Broken {
        bound: "R5, C4: an older list from a lagging replica",
        scenario: "time-travel",
        how: |target| target.with_injected_fault(InjectedFault::OlderList),
        said: "C4",
    },
    Broken {
        bound: "R6: attempts without a backoff",
        scenario: "no-spin",
        how: |target| {
            target.adjusting(|plan| {
                let wait = Duration::from_millis(5);
                plan.reflector.backoff = BackoffSettings { first: wait, second: wait, ceiling: wait };
            })
        },
        said: "attempts in four seconds",
    },
    Broken {
        bound: "R7: a server that delays one resource for another",
        scenario: "resource-refused",
        how: |target| {
            target.sabotaging(|server| {
                let lists =
                    RequestRule::any().resource("configmaps").verb(Verb::StreamedList).verb(Verb::List).times(1);
                server.faults().respond(lists, InjectedResponse::retry_after(503, Duration::from_secs(5)));
            })
        },
        said: "the sync of config maps",
    },
    Broken {
        bound: "R8: records that are dropped because of an undecodable one",
        scenario: "frames-split",
        how: |target| target.with_injected_fault(InjectedFault::DroppedRecords),
        said: "C11",
    },
    Broken {
        bound: "R10: idle connections that are kept",
        scenario: "idle-after-shutdown",
        how: |target| target.adjusting(|plan| plan.transport.idle_timeout = TOO_LONG),
        said: "the end of the idle connections",
    },
    Broken {
        bound: "R11: Retry-After is ignored",
        scenario: "server-busy",
        how: |target| target.with_injected_fault(InjectedFault::IgnoredRetryAfter),
        said: "with a Retry-After of",
    },
];

#[test]
fn each_broken_bound_fails_its_scenario() -> Result<(), Error> {
    let mut missed = Vec::new();
    for Broken { bound, scenario, how, said } in BROKEN {
        let scenario = catalog::named(scenario).ok_or_else(|| format!("unknown scenario {scenario:?}"))?;
        // The tests of each fault show that the unmodified library passes with this seed.
        let problems = match play(scenario, how(Target::in_memory(7))) {
            Ok(findings) => findings.problems(),
            Err(error) => vec![error.to_string()],
        };
        if !problems.iter().any(|problem| problem.contains(said)) {
            println!("{bound}: {problems:#?}");
            missed.push(bound);
        }
    }
    assert_eq!(missed, [&""; 0], "these faults were not detected by their scenarios");
    Ok(())
}
