//! Guarantees of a sweep.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::api::{Api, PostParams};
use steadfast::Connection;
use steadfast_testing::sweep::{Fixture, Sweep};
use steadfast_testing::{TestError, TestkitError, config_map};

use super::{create_parent_scenario, empty_config_map};

async fn idle(_: Connection) -> Result<(), TestError> {
    pending().await
}

fn message(outcome: Result<impl std::fmt::Display, TestkitError>) -> String {
    match outcome {
        Ok(report) => format!("no error: {report}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn ended_controller_is_reported() {
    let run_and_fail = |_| async { Err::<(), _>("no rights") };
    let text = message(Sweep::new(run_and_fail, create_parent_scenario).run());
    assert!(text.contains("the controller stopped (process 0 ended: no rights"), "{text}");
    let panics = |_| async { if true { panic!("no idea") } else { Ok::<(), String>(()) } };
    let text = message(Sweep::new(panics, create_parent_scenario).run());
    assert!(text.contains("process 0 panicked: no idea"), "{text}");
}

#[test]
fn failed_scenario_is_reported() {
    let fails = |_: Fixture| async { Err::<(), _>("no such thing") };
    let text = message(Sweep::new(idle, fails).run());
    assert_eq!(text, "run without a fault: the scenario failed: no such thing");
    let panics = |_: Fixture| async { if true { panic!("no idea") } else { Ok::<(), String>(()) } };
    let text = message(Sweep::new(idle, panics).run());
    assert_eq!(text, "run without a fault: the scenario panicked: no idea");
}

#[test]
fn irreproducible_scenario_is_reported() {
    let counter = AtomicU64::new(0);
    let other_each_time = |fixture: Fixture| {
        let number = counter.fetch_add(1, Ordering::Relaxed).to_string();
        async move {
            let maps = Api::namespaced(fixture.client(), "default");
            maps.create(&PostParams::default(), &config_map("a", &number)).await.map(drop)
        }
    };
    let text = message(Sweep::new(idle, other_each_time).run());
    assert!(
        text.contains("two runs have different final objects: configmaps default/a: /data/value is \"0\""),
        "{text}"
    );
    let counter = AtomicU64::new(0);
    let irreproducible_scenario = |fixture: Fixture| {
        let count = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(fixture.client(), "default");
            for _ in 0..count {
                maps.get_opt("a").await?;
            }
            maps.create(&PostParams::default(), &empty_config_map("a")).await.map(drop)
        }
    };
    let text = message(Sweep::new(idle, irreproducible_scenario).run());
    assert!(text.contains("two runs have different requests: scenario #1 create"), "{text}");
}

#[test]
fn violated_invariant_is_reported() {
    let sweep = Sweep::new(idle, create_parent_scenario).invariant("there is no parent", |server| {
        let write_count = server.history().changes_of("", "configmaps").count();
        if write_count == 0 { Ok(()) } else { Err(format!("{write_count} config maps were written")) }
    });
    assert_eq!(message(sweep.run()), "run without a fault: there is no parent: 1 config maps were written");
}

#[tokio::test]
async fn sweep_within_runtime_is_rejected() {
    let text = message(Sweep::new(idle, create_parent_scenario).run());
    assert!(text.contains("from a #[test], not from a #[tokio::test]"), "{text}");
}

#[test]
fn sweep_without_faults_returns_error() -> Result<(), TestkitError> {
    let empty_scenario = |_: Fixture| async { Ok::<(), String>(()) };
    let report = Sweep::new(idle, empty_scenario).run()?;
    assert!(report.check().is_err_and(|error| error.to_string().starts_with("no fault was injected")), "{report}");
    Ok(())
}

#[test]
fn endless_requests_are_stopped_and_reported() {
    let send_endlessly = |connection: Connection| async move {
        let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(connection.client(), "default");
        loop {
            maps.get_opt("a").await?;
        }
        #[allow(unreachable_code, reason = "it says what this ends with")]
        Ok::<(), kube::Error>(())
    };
    let text = message(Sweep::new(send_endlessly, create_parent_scenario).run());
    assert!(
        text.starts_with("run without a fault: too many requests: 10000 within a second, the last controller #9"),
        "{text}"
    );
}

#[test]
fn panicking_invariant_counts_as_violated() {
    let sweep = Sweep::new(idle, create_parent_scenario).invariant("it is sane", |_| panic!("it is not"));
    assert_eq!(message(sweep.run()), "run without a fault: it is sane: it is not");
}
