//! Simulated controllers, scheduler and nodes: workloads get pods, and pods start, without a cluster.
//!
//! | module | responsibility |
//! |---|---|
//! | `view` | the live objects, by key, UID and owner |
//! | `kind` | the kinds that the controllers read and write |
//! | `plan` | planned writes, and their application to the history |
//! | `options` | settings of the simulation |
//! | `context` | time and objects that a controller reads |
//! | `machine` | queue of objects to reconcile, timers, retries |
//! | `garbage` | deletion of dependents: background, foreground and orphaning |
//! | `nodes`, `pods` | simulated nodes; the scheduler, and the stages of a pod |
//! | `template` | pods from templates, revisions of templates |
//! | `replica_sets`, `deployments`, `stateful_sets`, `daemon_sets`, `jobs` | one controller each |
//! | `endpoint_slices` | endpoints of services |
//! | `conditions` | conditions of a status |
//!
//! Each controller is a function. It reads the live objects and the time, and plans writes. A controller never waits:
//! it runs again after each change of its object or of a dependent, and at a requested time.

mod conditions;
mod context;
mod daemon_sets;
mod deployments;
mod endpoint_slices;
mod garbage;
mod jobs;
mod kind;
mod machine;
mod nodes;
mod options;
mod plan;
mod pods;
mod replica_sets;
mod stateful_sets;
mod template;
mod view;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use machine::Machine;
pub use options::World;

/// Maximum number of reconciles without a pause, so that other tasks of the thread can run.
const MAX_RECONCILES_PER_TURN: usize = 32;

/// Runs the controllers for the server's lifetime.
pub(crate) async fn run(cluster: Arc<Cluster>, world: World) {
    // Subscribed before the first read, so that no change in between is missed.
    let mut changes = cluster.changed.subscribe();
    let mut machine = Machine::new(&cluster, world);
    loop {
        for _ in 0..MAX_RECONCILES_PER_TURN {
            machine.observe(&cluster);
            if !machine.reconcile_next(&cluster) {
                break;
            }
        }
        if machine.has_work() {
            tokio::task::yield_now().await;
            continue;
        }
        let due = machine.next_due();
        tokio::select! {
            observed = changes.changed() => if observed.is_err() { return },
            () = sleep_until(&cluster, due) => {}
        }
    }
}

/// Completes at the time `due` of the server's clock. Never completes if `due` is `None`.
async fn sleep_until(cluster: &Cluster, due: Option<Duration>) {
    match due {
        Some(due) => tokio::time::sleep(due.saturating_sub(cluster.clock.elapsed())).await,
        None => std::future::pending().await,
    }
}
