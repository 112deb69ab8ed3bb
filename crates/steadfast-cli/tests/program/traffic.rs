//! Real traffic as the oracle: 200 requests per second through a real `HAProxy`. Pods, load balancer, API servers and
//! the program itself change and fail during the traffic.
//!
//! No request may fail while a healthy pod exists. Exceptions are the 2 s after a restart of the load balancer, and
//! requests in flight on a crashed pod. After each scenario the servers in service equal the ready pods.

mod backends;
mod balancer;
mod fixture;
mod outages;
mod records;
mod registries;
mod requests;
mod slices;
mod systems;
mod tenants;
mod workload;

use std::time::Duration;

use fixture::{Fixture, Setup};
use workload::Deployment;

/// The documented rule, with all defaults.
const DOCUMENTED: Setup = Setup {
    name: "documented",
    clusters: &["here"],
    backends: &["web"],
    records: None,
    has_slices: false,
    rules: r#"
[sinks.web]
haproxy = { socket = "admin.sock", backend = "web", server_options = "check inter 500ms fall 2 observe layer4 error-limit 1 on-error mark-down" }

[[rules]]
name = "web"
resources = ["pods"]
namespaces = ["shop"]
labels = "app=web"
when = "has(object.status.podIP)"
send = "{'key': object.metadata.namespace + '.' + object.metadata.name, 'address': object.status.podIP, 'port': PORT}"
to = ["web"]
"#,
};

/// Starts a fixture with one deployment of `replicas` pods, `notify` and traffic.
fn start_fixture(setup: Setup, replicas: usize) -> Option<(Fixture, Deployment)> {
    let mut fixture = Fixture::start(setup)?;
    let deployment = Deployment::create(&mut fixture, 0, "web", replicas);
    fixture.start_notify();
    fixture.start_traffic();
    fixture.sleep(Duration::from_millis(300));
    Some((fixture, deployment))
}

#[test]
fn three_pod_update_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "roll-3", ..DOCUMENTED }, 3) else { return };
    web.replace_pods(&mut fixture);
    let verdict = fixture.finish();
    assert_eq!(verdict.response_counts.len(), 6, "all pods served: {verdict:?}");
}

#[test]
fn ten_pod_update_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "roll-10", ..DOCUMENTED }, 10) else { return };
    web.replace_pods(&mut fixture);
    let verdict = fixture.finish();
    assert_eq!(verdict.response_counts.len(), 20, "all pods served: {verdict:?}");
}

#[test]
fn thirty_pod_update_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "roll-30", ..DOCUMENTED }, 30) else { return };
    web.startup = Duration::from_millis(150);
    web.replace_pods(&mut fixture);
    let verdict = fixture.finish();
    assert_eq!(verdict.response_counts.len(), 60, "all pods served: {verdict:?}");
}

#[test]
fn stateful_set_update_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "stateful", ..DOCUMENTED }, 3) else { return };
    web.grace = Duration::from_millis(600);
    web.restart_pods_in_place(&mut fixture);
    fixture.finish();
}

#[test]
fn scale_down_fails_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "scale", ..DOCUMENTED }, 10) else { return };
    web.scale_down(&mut fixture, 3);
    // Removing more than a third needs no approval here: the objects were deleted, and other pods still serve.
    fixture.finish();
}

#[test]
fn replaced_crashed_pods_fail_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "crash", ..DOCUMENTED }, 4) else { return };
    for _ in 0..2 {
        web.replace_crashed(&mut fixture, Duration::from_millis(300));
    }
    // The kubelet restarts a container in place.
    let pod = web.pods[0].clone();
    fixture.crash(&pod);
    fixture.sleep(Duration::from_millis(300));
    fixture.set_ready(&pod, false);
    fixture.sleep(Duration::from_millis(300));
    fixture.recover(&pod);
    fixture.set_ready(&pod, true);
    fixture.finish();
}

#[test]
fn balancer_restart_recovers_within_two_seconds() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "reload", ..DOCUMENTED }, 3) else { return };
    fixture.disturb("HAProxy reloads", |balancer| balancer.reload());
    fixture.sleep(Duration::from_millis(2500));
    fixture.disturb("HAProxy restarts", balancer::Balancer::restart);
    fixture.sleep(Duration::from_millis(2500));
    fixture.disturb("HAProxy reloads during a rolling update", |balancer| balancer.reload());
    web.replace_pods(&mut fixture);
    fixture.finish();
}

#[test]
fn checker_detects_dead_servers() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "seen", ..DOCUMENTED }, 1) else { return };
    // The program no longer runs, so the balancer keeps the dead server of the replaced pod and gets no new server.
    fixture.end_notify("TERM");
    web.grace = Duration::ZERO;
    web.replace_pods(&mut fixture);
    fixture.sleep(Duration::from_millis(300));
    let fault = fixture.verdict(|_| true).expect_err("the only server is dead");
    assert!(fault.contains("requests failed") && fault.contains("503"), "{fault}");
}
