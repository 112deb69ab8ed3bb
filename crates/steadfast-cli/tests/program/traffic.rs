//! Real traffic as the oracle: 200 requests per second through a real `HAProxy`. Pods, load balancer, API servers and
//! the program itself change and fail during the traffic.
//!
//! No request may fail while a healthy pod exists. Exceptions are the 2 s after a restart of the load balancer, and
//! requests in flight on a crashed pod. After each scenario the servers in service equal the ready pods.

mod backends;
mod balancer;
mod outages;
mod records;
mod registries;
mod requests;
mod slices;
mod systems;
mod tenants;
mod workload;
mod world;

use std::time::Duration;

use workload::Deployment;
use world::{Setup, World};

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

/// Starts a world with one deployment of `replicas` pods, `notify` and traffic.
fn start_world(setup: Setup, replicas: usize) -> Option<(World, Deployment)> {
    let mut world = World::start(setup)?;
    let deployment = Deployment::create(&mut world, 0, "web", replicas);
    world.start_notify();
    world.start_traffic();
    world.sleep(Duration::from_millis(300));
    Some((world, deployment))
}

#[test]
fn three_pod_update_fails_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "roll-3", ..DOCUMENTED }, 3) else { return };
    web.roll(&mut world);
    let verdict = world.finish();
    assert_eq!(verdict.served.len(), 6, "all pods served: {verdict:?}");
}

#[test]
fn ten_pod_update_fails_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "roll-10", ..DOCUMENTED }, 10) else { return };
    web.roll(&mut world);
    let verdict = world.finish();
    assert_eq!(verdict.served.len(), 20, "all pods served: {verdict:?}");
}

#[test]
fn thirty_pod_update_fails_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "roll-30", ..DOCUMENTED }, 30) else { return };
    web.startup = Duration::from_millis(150);
    web.roll(&mut world);
    let verdict = world.finish();
    assert_eq!(verdict.served.len(), 60, "all pods served: {verdict:?}");
}

#[test]
fn stateful_set_update_fails_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "stateful", ..DOCUMENTED }, 3) else { return };
    web.grace = Duration::from_millis(600);
    web.roll_in_place(&mut world);
    world.finish();
}

#[test]
fn scale_down_fails_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "scale", ..DOCUMENTED }, 10) else { return };
    web.scale_down(&mut world, 3);
    // Removing more than a third needs no approval here: the objects were deleted, and other pods still serve.
    world.finish();
}

#[test]
fn replaced_crashed_pods_fail_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "crash", ..DOCUMENTED }, 4) else { return };
    for _ in 0..2 {
        web.replace_crashed(&mut world, Duration::from_millis(300));
    }
    // The kubelet restarts a container in place.
    let pod = web.pods[0].clone();
    world.crash(&pod);
    world.sleep(Duration::from_millis(300));
    world.set_ready(&pod, false);
    world.sleep(Duration::from_millis(300));
    world.recover(&pod);
    world.set_ready(&pod, true);
    world.finish();
}

#[test]
fn balancer_restart_recovers_within_two_seconds() {
    let Some((mut world, mut web)) = start_world(Setup { name: "reload", ..DOCUMENTED }, 3) else { return };
    world.disturb("HAProxy reloads", |balancer| balancer.reload());
    world.sleep(Duration::from_millis(2500));
    world.disturb("HAProxy restarts", balancer::Balancer::restart);
    world.sleep(Duration::from_millis(2500));
    world.disturb("HAProxy reloads during a rolling update", |balancer| balancer.reload());
    web.roll(&mut world);
    world.finish();
}

#[test]
fn checker_detects_dead_servers() {
    let Some((mut world, mut web)) = start_world(Setup { name: "seen", ..DOCUMENTED }, 1) else { return };
    // Leaves two dead servers: the program no longer runs.
    world.end_notify("TERM");
    web.grace = Duration::ZERO;
    web.roll(&mut world);
    world.sleep(Duration::from_millis(300));
    let fault = world.verdict(|_| true).expect_err("the only server is dead");
    assert!(fault.contains("requests failed") && fault.contains("503"), "{fault}");
}
