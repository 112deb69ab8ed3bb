//! What a sweep itself promises.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::api::{Api, PostParams};
use steadfast::Connection;
use steadfast_testing::sweep::{Stage, Sweep};
use steadfast_testing::{Error, WorldError, config_map};

use super::{comes, named};

async fn idle(_: Connection) -> Result<(), WorldError> {
    pending().await
}

fn told(outcome: Result<impl std::fmt::Display, Error>) -> String {
    match outcome {
        Ok(report) => format!("nothing is wrong: {report}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_controller_that_ends_by_itself_is_told() {
    let ends = |_| async { Err::<(), _>("no rights") };
    let text = told(Sweep::new(ends, comes).run());
    assert!(text.contains("the controller stopped (process 0 ended: no rights"), "{text}");
    let panics = |_| async { if true { panic!("no idea") } else { Ok::<(), String>(()) } };
    let text = told(Sweep::new(panics, comes).run());
    assert!(text.contains("process 0 panicked: no idea"), "{text}");
}

#[test]
fn a_scenario_that_fails_undisturbed_is_told() {
    let fails = |_: Stage| async { Err::<(), _>("no such thing") };
    let text = told(Sweep::new(idle, fails).run());
    assert_eq!(text, "run without a fault: the scenario failed: no such thing");
    let panics = |_: Stage| async { if true { panic!("no idea") } else { Ok::<(), String>(()) } };
    let text = told(Sweep::new(idle, panics).run());
    assert_eq!(text, "run without a fault: the scenario panicked: no idea");
}

#[test]
fn a_scenario_that_is_not_the_same_twice_is_told() {
    let counter = AtomicU64::new(0);
    let other_each_time = |stage: Stage| {
        let number = counter.fetch_add(1, Ordering::Relaxed).to_string();
        async move {
            let maps = Api::namespaced(stage.client(), "default");
            maps.create(&PostParams::default(), &config_map("a", &number)).await.map(drop)
        }
    };
    let text = told(Sweep::new(idle, other_each_time).run());
    assert!(
        text.contains("two runs have different final objects: configmaps default/a: /data/value is \"0\""),
        "{text}"
    );
    let counter = AtomicU64::new(0);
    let asks_more_each_time = |stage: Stage| {
        let count = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(stage.client(), "default");
            for _ in 0..count {
                maps.get_opt("a").await?;
            }
            maps.create(&PostParams::default(), &named("a")).await.map(drop)
        }
    };
    let text = told(Sweep::new(idle, asks_more_each_time).run());
    assert!(text.contains("two runs have different requests: scenario #1 create"), "{text}");
}

#[test]
fn what_is_always_to_be_true_is_told_where_it_is_not() {
    let sweep = Sweep::new(idle, comes).invariant("there is no parent", |server| {
        let written = server.history().of("", "configmaps").count();
        if written == 0 { Ok(()) } else { Err(format!("{written} config maps were written")) }
    });
    assert_eq!(told(sweep.run()), "run without a fault: there is no parent: 1 config maps were written");
}

#[tokio::test]
async fn a_sweep_within_a_runtime_is_refused() {
    let text = told(Sweep::new(idle, comes).run());
    assert!(text.contains("a #[test], not a #[tokio::test]"), "{text}");
}

#[test]
fn where_nothing_is_disturbed_nothing_is_tested() -> Result<(), Error> {
    let nothing = |_: Stage| async { Ok::<(), String>(()) };
    let report = Sweep::new(idle, nothing).run()?;
    assert!(report.check().is_err_and(|error| error.to_string().starts_with("no fault was injected")), "{report}");
    Ok(())
}

#[test]
fn a_controller_that_requests_without_end_is_stopped_and_told() {
    let spins = |connection: Connection| async move {
        let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(connection.client(), "default");
        loop {
            maps.get_opt("a").await?;
        }
        #[allow(unreachable_code, reason = "it says what this ends with")]
        Ok::<(), kube::Error>(())
    };
    let text = told(Sweep::new(spins, comes).run());
    assert!(
        text.starts_with("run without a fault: too many requests: 10000 within a second, the last controller #9"),
        "{text}"
    );
}

#[test]
fn an_invariant_that_panics_is_one_that_is_broken() {
    let sweep = Sweep::new(idle, comes).invariant("it is sane", |_| panic!("it is not"));
    assert_eq!(told(sweep.run()), "run without a fault: it is sane: it is not");
}
