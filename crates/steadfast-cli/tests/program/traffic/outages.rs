//! Traffic during outages of API servers, whole clusters and the program itself.

use std::time::Duration;

use super::workload::Deployment;
use super::world::{Setup, World};
use super::{DOCUMENTED, start_world};

/// Two clusters feed one backend.
pub(super) const TWO_CLUSTERS: Setup = Setup { clusters: &["east", "west"], ..DOCUMENTED };

fn is_east(id: &str) -> bool {
    id.starts_with("east/")
}

#[test]
fn api_server_restarts_fail_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "api", ..DOCUMENTED }, 6) else { return };
    web.roll_with(&mut world, |world, step| match step {
        2 => world.clusters[0].faults().restart(),
        3 => world.clusters[0].faults().stop(),
        5 => world.clusters[0].faults().start(),
        _ => {}
    });
    world.finish();
}

#[test]
fn initially_unreachable_cluster_delays_no_other() {
    let Some(mut world) = World::start(Setup { name: "away-at-start", ..TWO_CLUSTERS }) else { return };
    world.clusters[1].faults().cut();
    world.note("west is unreachable");
    let mut east = Deployment::create(&mut world, 0, "web-of-east", 4);
    world.start_notify();
    world.start_traffic();
    east.roll(&mut world);
    world.sleep(Duration::from_secs(1));
    world.wait_until_converged();
    world.note("west is reachable again");
    world.clusters[1].faults().heal();
    Deployment::create(&mut world, 1, "web-of-west", 3);
    world.finish();
}

#[test]
fn unreachable_cluster_keeps_only_its_servers() {
    let Some((mut world, mut east)) = start_world(Setup { name: "away-later", ..TWO_CLUSTERS }, 4) else { return };
    let mut west = Deployment::create(&mut world, 1, "web-of-west", 4);
    world.wait_until_converged();
    world.note("west is unreachable");
    world.clusters[1].faults().cut();
    world.unreachable = Some(1);
    world.sleep(Duration::from_secs(1));
    // The program cannot see the changes in the west, but must apply the changes in the east.
    west.roll(&mut world);
    east.roll(&mut world);
    world.sleep(Duration::from_secs(1));
    world.wait_until_converged_for(is_east, |id| !is_east(id));
    world.note("west is reachable again");
    world.clusters[1].faults().heal();
    world.unreachable = None;
    world.finish();
}

#[test]
fn program_restarts_fail_no_request() {
    let Some((mut world, mut web)) = start_world(Setup { name: "restarts", ..DOCUMENTED }, 10) else { return };
    web.roll_with(&mut world, |world, step| match step {
        2 => world.end_notify("KILL"),
        6 => world.end_notify("TERM"),
        4 | 8 => world.start_notify(),
        _ => {}
    });
    world.finish();
}

#[test]
fn repeated_kills_leave_no_dead_server() {
    let Some((mut world, mut web)) = start_world(Setup { name: "kills", ..DOCUMENTED }, 6) else { return };
    web.roll_with(&mut world, |world, _| {
        world.end_notify("KILL");
        world.start_notify();
    });
    world.finish();
}
