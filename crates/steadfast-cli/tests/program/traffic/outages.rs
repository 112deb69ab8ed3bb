//! Traffic during outages of API servers, whole clusters and the program itself.

use std::time::Duration;

use super::fixture::{Fixture, Setup};
use super::workload::Deployment;
use super::{DOCUMENTED, start_fixture};

/// Two clusters feed one backend.
pub(super) const TWO_CLUSTERS: Setup = Setup { clusters: &["east", "west"], ..DOCUMENTED };

fn is_east(id: &str) -> bool {
    id.starts_with("east/")
}

#[test]
fn api_server_restarts_fail_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "api", ..DOCUMENTED }, 6) else { return };
    web.replace_pods_with(&mut fixture, |fixture, step| match step {
        2 => fixture.clusters[0].faults().restart(),
        3 => fixture.clusters[0].faults().stop(),
        5 => fixture.clusters[0].faults().start(),
        _ => {}
    });
    fixture.finish();
}

#[test]
fn initially_unreachable_cluster_delays_no_other() {
    let Some(mut fixture) = Fixture::start(Setup { name: "away-at-start", ..TWO_CLUSTERS }) else { return };
    fixture.clusters[1].faults().cut();
    fixture.log_event("west is unreachable");
    let mut east = Deployment::create(&mut fixture, 0, "web-of-east", 4);
    fixture.start_notify();
    fixture.start_traffic();
    east.replace_pods(&mut fixture);
    fixture.sleep(Duration::from_secs(1));
    fixture.wait_until_converged();
    fixture.log_event("west is reachable again");
    fixture.clusters[1].faults().heal();
    Deployment::create(&mut fixture, 1, "web-of-west", 3);
    fixture.finish();
}

#[test]
fn unreachable_cluster_keeps_only_its_servers() {
    let Some((mut fixture, mut east)) = start_fixture(Setup { name: "away-later", ..TWO_CLUSTERS }, 4) else { return };
    let mut west = Deployment::create(&mut fixture, 1, "web-of-west", 4);
    fixture.wait_until_converged();
    fixture.log_event("west is unreachable");
    fixture.clusters[1].faults().cut();
    fixture.unreachable = Some(1);
    fixture.sleep(Duration::from_secs(1));
    // The program cannot see the changes in the west, but must apply the changes in the east.
    west.replace_pods(&mut fixture);
    east.replace_pods(&mut fixture);
    fixture.sleep(Duration::from_secs(1));
    fixture.wait_until_converged_for(is_east, |id| !is_east(id));
    fixture.log_event("west is reachable again");
    fixture.clusters[1].faults().heal();
    fixture.unreachable = None;
    fixture.finish();
}

#[test]
fn program_restarts_fail_no_request() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "restarts", ..DOCUMENTED }, 10) else { return };
    web.replace_pods_with(&mut fixture, |fixture, step| match step {
        2 => fixture.end_notify("KILL"),
        6 => fixture.end_notify("TERM"),
        4 | 8 => fixture.start_notify(),
        _ => {}
    });
    fixture.finish();
}

#[test]
fn repeated_kills_leave_no_dead_server() {
    let Some((mut fixture, mut web)) = start_fixture(Setup { name: "kills", ..DOCUMENTED }, 6) else { return };
    web.replace_pods_with(&mut fixture, |fixture, _| {
        fixture.end_notify("KILL");
        fixture.start_notify();
    });
    fixture.finish();
}
