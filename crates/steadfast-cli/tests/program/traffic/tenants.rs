//! One tenant misbehaves; traffic and entries of other tenants must not change.

use std::time::Duration;

use serde_json::json;

use super::fixture::{Fixture, SHOP, Setup, TENANT};
use super::workload::Deployment;
use super::{DOCUMENTED, start_fixture};

/// Pods of all namespaces share one backend. Each pod chooses its port and weight by annotations.
const SHARED_SETUP: Setup = Setup {
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
fn roll_and_check(mut fixture: Fixture, mut web: Deployment) {
    web.replace_pods(&mut fixture);
    fixture.sleep(Duration::from_millis(200));
    fixture.wait_until_converged_for(is_shop, |id| !is_shop(id));
    fixture.sleep(Duration::from_millis(300));
    // Well-formed pods of the tenant belong to the backend, too.
    fixture.verdict(|_| true).unwrap_or_else(|fault| panic!("{fault}\n{}", fixture.report()));
}

#[test]
fn unselected_namespace_is_never_served() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "unselected", ..DOCUMENTED }, 3) else { return };
    for number in 0..6 {
        fixture.create_ready(0, TENANT, &format!("web-{number}"));
    }
    web.replace_pods(&mut fixture);
    fixture.finish();
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
    let Some((mut fixture, web)) = start_fixture(Setup { name: "names", rules, ..DOCUMENTED }, 3) else { return };
    // The shop must hold the names first: with the unscoped keys of this rule, the tenant could claim free names.
    let tenants: Vec<_> = (0..3).map(|number| fixture.create_ready(0, TENANT, &format!("web-{number}"))).collect();
    fixture.sleep(Duration::from_millis(300));
    fixture.wait_until_converged_for(is_shop, |id| !is_shop(id));
    for pod in &tenants {
        fixture.set_ready(pod, false);
    }
    fixture.sleep(Duration::from_millis(300));
    fixture.wait_until_converged_for(is_shop, |id| !is_shop(id));
    roll_and_check(fixture, web);
}

#[test]
fn failing_expression_delays_no_foreign_removal() {
    let Some((mut fixture, web)) = start_fixture(Setup { name: "expression", ..SHARED_SETUP }, 4) else { return };
    for (name, annotations) in
        [("none", json!(null)), ("text", json!({"example.org/port": "http", "example.org/weight": "?"}))]
    {
        let mut pod = fixture.object(TENANT, name, "127.0.0.1");
        pod["metadata"]["annotations"] = annotations;
        fixture.clusters[0].create(&pod).expect("a pod");
    }
    fixture.log_event("two pods of the tenant fail the rule");
    roll_and_check(fixture, web);
}

#[test]
fn rejected_haproxy_entry_affects_only_itself() {
    let Some((mut fixture, web)) = start_fixture(Setup { name: "rejected", ..SHARED_SETUP }, 4) else { return };
    let long_name = format!("web-{}", "x".repeat(240));
    let invalid_pods = [
        ("heavy", "127.0.0.1", "8080", "100000"),
        ("negative", "127.0.0.1", "8080", "-1"),
        ("port", "127.0.0.1", "99999999999", "1"),
        ("no-port", "127.0.0.1", "0", "1"),
        ("unspecified", "0.0.0.0", "8080", "0"),
        (&long_name, "127.0.0.1", "1", "0"),
    ];
    for (name, address, port, weight) in invalid_pods {
        let mut pod = fixture.object(TENANT, name, address);
        pod["metadata"]["annotations"] = json!({"example.org/port": port, "example.org/weight": weight});
        pod["status"]["conditions"] = json!([]);
        fixture.clusters[0].create(&pod).expect("a pod");
    }
    fixture.log_event("pods of the tenant cannot be servers");
    roll_and_check(fixture, web);
}

#[test]
fn flapping_readiness_delays_no_foreign_removal() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "flapping", ..SHARED_SETUP }, 4) else { return };
    let tenants: Vec<_> = (0..8).map(|number| fixture.create_ready(0, TENANT, &format!("flap-{number}"))).collect();
    web.startup = Duration::from_millis(20);
    web.grace = Duration::from_millis(1500);
    let flap = |fixture: &mut Fixture, step: usize| {
        for round in 0..10 {
            for pod in &tenants {
                fixture.set_ready(pod, (step + round).is_multiple_of(2));
            }
            fixture.sleep(Duration::from_millis(30));
        }
    };
    web.replace_pods_with(&mut fixture, flap);
    for pod in &tenants {
        fixture.set_ready(pod, false);
    }
    roll_and_check(fixture, web);
}

#[test]
fn foreign_server_address_stays_with_holder() {
    let Some((mut fixture, web)) = start_fixture(Setup { name: "address", ..SHARED_SETUP }, 4) else { return };
    let address = fixture.address(&web.pods[0]).ip().to_string();
    let mut thief = fixture.object(TENANT, "thief", &address);
    thief["metadata"]["finalizers"] = json!(null);
    thief["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    for _ in 0..3 {
        fixture.log_event("the tenant claims the address of a server of the shop");
        fixture.clusters[0].create(&thief).expect("a pod");
        fixture.sleep(Duration::from_millis(300));
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        fixture.clusters[0].merge_patch("pods", TENANT, "thief", unready).expect("the pod exists");
        fixture.sleep(Duration::from_millis(300));
        fixture.clusters[0].delete_named("pods", TENANT, "thief").expect("the pod exists");
        fixture.sleep(Duration::from_millis(300));
    }
    fixture.wait_until_converged();
    roll_and_check(fixture, web);
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
    let Some((mut fixture, web)) = start_fixture(setup, 4) else { return };
    let addresses: Vec<_> = (0..10_000).map(|number| format!("127.3.{}.{}", number / 250, number % 250 + 1)).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": TENANT, "name": "many"},
        "data": {"addresses": addresses.join(",")},
    });
    fixture.clusters[0].create(&object).expect("a config map");
    fixture.log_event("the tenant has 10,000 entries");
    roll_and_check(fixture, web);
}
