//! One tenant misbehaves; traffic and entries of other tenants must not change.

use std::time::Duration;

use serde_json::json;

use super::workload::Deployment;
use super::world::{SHOP, Setup, TENANT, World};
use super::{DOCUMENTED, start_world};

/// Pods of all namespaces share one backend. Each pod chooses its port and weight by annotations.
const SHARED: Setup = Setup {
    rules: r#"
[sinks.web]
haproxy = { socket = "admin.sock", backend = "web", server_options = "check inter 500ms fall 2 observe layer4 error-limit 1 on-error mark-down" }

[[rules]]
name = "web"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = """{
    'key': object.metadata.namespace + '.' + object.metadata.name,
    'address': object.status.podIP,
    'port': int(object.metadata.annotations['example.org/port']),
    'weight': int(object.metadata.annotations['example.org/weight']),
}"""
to = ["web"]
"#,
    ..DOCUMENTED
};

fn is_shop(id: &str) -> bool {
    id.contains(&format!("/{SHOP}/"))
}

/// Runs an ordinary rolling update of the shop. Afterwards its servers must match its pods.
fn roll_and_check(mut world: World, mut web: Deployment) {
    web.roll(&mut world);
    world.sleep(Duration::from_millis(200));
    world.wait_until_converged_for(is_shop, |id| !is_shop(id));
    world.sleep(Duration::from_millis(300));
    // Well-formed pods of the tenant belong to the backend, too.
    world.verdict(|_| true).unwrap_or_else(|fault| panic!("{fault}\n{}", world.report()));
}

#[test]
fn unselected_namespace_is_never_served() {
    let Some((mut world, mut web)) = start_world(Setup { name: "unselected", ..DOCUMENTED }, 3) else { return };
    for number in 0..6 {
        world.create_ready(0, TENANT, &format!("web-{number}"));
    }
    web.roll(&mut world);
    world.finish();
}

#[test]
fn equal_pod_names_take_over_no_server() {
    let rules = r#"
[sinks.web]
haproxy = { socket = "admin.sock", backend = "web", server_options = "check inter 500ms fall 2 observe layer4 error-limit 1 on-error mark-down" }

[[rules]]
name = "web"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = "{'key': object.metadata.name, 'address': object.status.podIP, 'port': PORT}"
to = ["web"]
"#;
    let Some((mut world, web)) = start_world(Setup { name: "names", rules, ..DOCUMENTED }, 3) else { return };
    // The shop must hold the names first: with the unscoped keys of this rule, the tenant could claim free names.
    let tenants: Vec<_> = (0..3).map(|number| world.create_ready(0, TENANT, &format!("web-{number}"))).collect();
    world.sleep(Duration::from_millis(300));
    world.wait_until_converged_for(is_shop, |id| !is_shop(id));
    for pod in &tenants {
        world.set_ready(pod, false);
    }
    world.sleep(Duration::from_millis(300));
    world.wait_until_converged_for(is_shop, |id| !is_shop(id));
    roll_and_check(world, web);
}

#[test]
fn failing_expression_delays_no_foreign_removal() {
    let Some((mut world, web)) = start_world(Setup { name: "expression", ..SHARED }, 4) else { return };
    for (name, annotations) in
        [("none", json!(null)), ("text", json!({"example.org/port": "http", "example.org/weight": "?"}))]
    {
        let mut pod = world.object(TENANT, name, "127.0.0.1");
        pod["metadata"]["annotations"] = annotations;
        world.clusters[0].create(&pod).expect("a pod");
    }
    world.note("two pods of the tenant fail the rule");
    roll_and_check(world, web);
}

#[test]
fn rejected_haproxy_entry_affects_only_itself() {
    let Some((mut world, web)) = start_world(Setup { name: "rejected", ..SHARED }, 4) else { return };
    let long = format!("web-{}", "x".repeat(240));
    let wrong = [
        ("heavy", "127.0.0.1", "8080", "100000"),
        ("negative", "127.0.0.1", "8080", "-1"),
        ("port", "127.0.0.1", "99999999999", "1"),
        ("no-port", "127.0.0.1", "0", "1"),
        ("unspecified", "0.0.0.0", "8080", "0"),
        (&long, "127.0.0.1", "1", "0"),
    ];
    for (name, address, port, weight) in wrong {
        let mut pod = world.object(TENANT, name, address);
        pod["metadata"]["annotations"] = json!({"example.org/port": port, "example.org/weight": weight});
        pod["status"]["conditions"] = json!([]);
        world.clusters[0].create(&pod).expect("a pod");
    }
    world.note("pods of the tenant are no possible servers");
    roll_and_check(world, web);
}

#[test]
fn flapping_readiness_delays_no_foreign_removal() {
    let Some((mut world, mut web)) = start_world(Setup { name: "flapping", ..SHARED }, 4) else { return };
    let tenants: Vec<_> = (0..8).map(|number| world.create_ready(0, TENANT, &format!("flap-{number}"))).collect();
    web.startup = Duration::from_millis(20);
    web.grace = Duration::from_millis(1500);
    let flap = |world: &mut World, step: usize| {
        for round in 0..10 {
            for pod in &tenants {
                world.set_ready(pod, (step + round).is_multiple_of(2));
            }
            world.sleep(Duration::from_millis(30));
        }
    };
    web.roll_with(&mut world, flap);
    for pod in &tenants {
        world.set_ready(pod, false);
    }
    roll_and_check(world, web);
}

#[test]
fn foreign_server_address_stays_with_holder() {
    let Some((mut world, web)) = start_world(Setup { name: "address", ..SHARED }, 4) else { return };
    let address = world.address(&web.pods[0]).ip().to_string();
    let mut thief = world.object(TENANT, "thief", &address);
    thief["metadata"]["finalizers"] = json!(null);
    thief["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    for _ in 0..3 {
        world.note("the tenant claims the address of a server of the shop");
        world.clusters[0].create(&thief).expect("a pod");
        world.sleep(Duration::from_millis(300));
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        world.clusters[0].merge_patch("pods", TENANT, "thief", unready).expect("the pod exists");
        world.sleep(Duration::from_millis(300));
        world.clusters[0].delete_named("pods", TENANT, "thief").expect("the pod exists");
        world.sleep(Duration::from_millis(300));
    }
    world.wait_until_converged();
    roll_and_check(world, web);
}

#[test]
fn ten_thousand_entries_delay_no_foreign_server() {
    let rules = r#"
[sinks.web]
haproxy = { socket = "admin.sock", backend = "web", server_options = "check inter 500ms fall 2 observe layer4 error-limit 1 on-error mark-down" }
[sinks.theirs]
haproxy = { socket = "admin.sock", backend = "theirs" }

[[rules]]
name = "web"
resources = ["pods"]
namespaces = ["shop"]
labels = "app=web"
when = "has(object.status.podIP)"
send = "{'key': object.metadata.namespace + '.' + object.metadata.name, 'address': object.status.podIP, 'port': PORT}"
to = ["web"]

[[rules]]
name = "theirs"
resources = ["configmaps"]
namespaces = ["aaa"]
send = "object.data.addresses.split(',').map(a, {'key': object.metadata.name + '.' + a, 'address': a, 'port': PORT})"
to = ["theirs"]
"#;
    let setup = Setup { name: "many", backends: &["web", "theirs"], rules, ..DOCUMENTED };
    let Some((mut world, web)) = start_world(setup, 4) else { return };
    let addresses: Vec<_> = (0..10_000).map(|number| format!("127.3.{}.{}", number / 250, number % 250 + 1)).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": TENANT, "name": "many"},
        "data": {"addresses": addresses.join(",")},
    });
    world.clusters[0].create(&object).expect("a config map");
    world.note("the tenant has 10,000 entries");
    roll_and_check(world, web);
}
