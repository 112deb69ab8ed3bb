//! A real DNS server and a real etcd follow the same pods. Both must contain every ready pod and no dead pod.

use std::time::Duration;

use serde_json::json;

use super::fixture::{Fixture, Setup, TENANT};
use super::outages::TWO_CLUSTERS;
use super::workload::Deployment;
use crate::dns_server::DnsKind;

/// Names, keys and values of one rule per system. Annotations of a pod override the defaults.
///
/// Each name belongs to one cluster and namespace, so the clusters use different names.
const RECORDS: Setup = Setup {
    name: "records",
    clusters: &["here"],
    backends: &["unused"],
    records: Some(DnsKind::Knot),
    has_slices: false,
    rules: r#"
[sinks.zone]
dns = { server = "DNS_SERVER", zone = "example.org", secret = { file = "key" }, mark = "traffic" }
[sinks.registry]
etcd = { endpoints = ["ETCD_URL"], prefix = "/services/", mark = "traffic" }

[[rules]]
name = "zone"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = """{
    'key': event.cluster + '/' + object.metadata.namespace + '/' + object.metadata.name,
    'name': object.metadata.annotations[?'example.org/name'].orValue(
        (event.cluster == 'west' ? 'west' : 'web') + '.example.org'),
    'type': object.metadata.annotations[?'example.org/type'].orValue('A'),
    'data': object.metadata.annotations[?'example.org/data'].orValue(object.status.podIP),
    'ttl': int(object.metadata.annotations[?'example.org/ttl'].orValue('60')),
}"""
to = ["zone"]

[[rules]]
name = "registry"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = """{
    'key': object.metadata.annotations[?'example.org/key'].orValue(
        'web/' + event.cluster + '.' + object.metadata.namespace + '.' + object.metadata.name),
    'value': object.metadata.annotations[?'example.org/value'].orValue(object.status.podIP),
}"""
to = ["registry"]
"#,
};

fn start_fixture(setup: Setup, replicas: usize) -> Option<(Fixture, Deployment)> {
    let mut fixture = Fixture::start(setup)?;
    let mut deployment = Deployment::create(&mut fixture, 0, "web", replicas);
    deployment.grace = Duration::from_millis(1500);
    fixture.start_notify();
    fixture.start_readers();
    Some((fixture, deployment))
}

#[test]
fn rolling_update_loses_no_record() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "records-roll", ..RECORDS }, 8) else { return };
    web.replace_pods(&mut fixture);
    fixture.finish_records();
}

#[test]
fn crashed_pods_leave_names_and_keys() {
    let Some((mut fixture, mut web)) =
        start_fixture(Setup { name: "records-crash", records: Some(DnsKind::Bind), ..RECORDS }, 5)
    else {
        return;
    };
    for _ in 0..2 {
        web.replace_crashed(&mut fixture, Duration::from_millis(200));
    }
    fixture.finish_records();
}

#[test]
fn records_return_within_bounds_after_loss() {
    let Some((mut fixture, mut web)) =
        start_fixture(Setup { name: "records-loss", records: Some(DnsKind::Bind), ..RECORDS }, 4)
    else {
        return;
    };
    fixture.sleep(Duration::from_millis(500));
    fixture.lose_lease();
    fixture.restore_zone();
    web.replace_pods(&mut fixture);
    fixture.sleep(Duration::from_secs(9));
    fixture.finish_records();
}

#[test]
fn records_survive_restarts_of_program_and_servers() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "records-restarts", ..RECORDS }, 6) else { return };
    web.replace_pods_with(&mut fixture, |fixture, step| match step {
        1 => fixture.end_notify("KILL"),
        2 => fixture.start_notify(),
        3 => fixture.restart_etcd(),
        4 => fixture.clusters[0].faults().restart(),
        5 => {
            fixture.end_notify("TERM");
            fixture.start_notify();
        }
        _ => {}
    });
    fixture.finish_records();
}

#[test]
fn unreachable_cluster_delays_no_record_of_another() {
    let setup = Setup { name: "records-away", clusters: TWO_CLUSTERS.clusters, ..RECORDS };
    let Some(mut fixture) = Fixture::start(setup) else { return };
    fixture.clusters[1].faults().cut();
    let mut east = Deployment::create(&mut fixture, 0, "web-of-east", 4);
    fixture.start_notify();
    fixture.start_readers();
    east.replace_pods(&mut fixture);
    fixture.clusters[1].faults().heal();
    // The limits of the checks assume a reached cluster. The program may need ten seconds of backoff to reach the
    // cluster.
    fixture.wait_for_report("cluster west: reached");
    Deployment::create(&mut fixture, 1, "web-of-west", 2);
    fixture.wait_for_records();
    fixture.clusters[1].faults().cut();
    fixture.sleep(Duration::from_millis(500));
    east.replace_pods(&mut fixture);
    fixture.finish_records();
}

#[test]
fn rejected_records_affect_only_themselves() {
    let Some((mut fixture, mut web)) =
        start_fixture(Setup { name: "records-tenant", records: Some(DnsKind::Bind), ..RECORDS }, 4)
    else {
        return;
    };
    let huge = "x".repeat(200_000);
    let long_name = format!("{}.example.org", "l".repeat(64));
    let invalid_entries = [
        json!({"example.org/name": "www.example.com"}),
        json!({"example.org/name": "web.example.org", "example.org/type": "CNAME", "example.org/data": "elsewhere.example.com"}),
        json!({"example.org/name": "ttl.example.org", "example.org/ttl": "86400"}),
        json!({"example.org/name": "ttl.example.org", "example.org/ttl": "-1"}),
        json!({"example.org/name": "ttl.example.org", "example.org/ttl": "a day"}),
        json!({"example.org/name": "grüße.example.org"}),
        json!({"example.org/name": "", "example.org/data": ""}),
        json!({"example.org/name": long_name}),
        json!({"example.org/name": "data.example.org", "example.org/data": "not an address"}),
        json!({"example.org/name": "type.example.org", "example.org/type": "SOA"}),
        json!({"example.org/name": "*.theirs.example.org", "example.org/key": "../../other"}),
        json!({"example.org/name": "huge.example.org", "example.org/key": "huge", "example.org/value": huge}),
        json!({"example.org/name": "key.example.org", "example.org/key": "web/here.shop.web-0"}),
        json!({"example.org/name": "key.example.org", "example.org/key": "with\u{1b}[31m\n control"}),
    ];
    for (number, mut annotations) in invalid_entries.into_iter().enumerate() {
        // Default keys of the tenant lie outside the prefix that the test reads.
        if annotations["example.org/key"].is_null() {
            annotations["example.org/key"] = json!(format!("theirs/{number}"));
        }
        let mut pod = fixture.object(TENANT, &format!("wrong-{number}"), "10.9.9.9");
        pod["metadata"]["annotations"] = annotations;
        pod["status"]["conditions"] = json!([]);
        fixture.clusters[0].create(&pod).expect("a pod");
    }
    fixture.log_event("records of the tenant are wrong in all ways");
    fixture.sleep(Duration::from_millis(500));
    // Once the holder releases the key, the tenant may have it.
    fixture.clusters[0]
        .merge_patch("pods", TENANT, "wrong-12", json!({"metadata": {"finalizers": null}}))
        .expect("a pod");
    fixture.clusters[0].delete_named("pods", TENANT, "wrong-12").expect("a pod");
    fixture.sleep(Duration::from_millis(200));
    web.replace_pods(&mut fixture);
    fixture.finish_records();
}
