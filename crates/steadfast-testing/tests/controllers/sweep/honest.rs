//! Controllers without a bug: no fault changes the final state.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::Connection;
use steadfast_controller::{Action, FinalizerError, Finalizing, LeaderElection, finalizer};
use steadfast_testing::sweep::{Fixture, RequestFaultKind, Sweep};
use steadfast_testing::{TestError, TestkitError};

use super::{
    Context, change_parent, child_name, create_change_delete_scenario, create_parent, is_not_found, run_controller,
    run_controller_with,
};

/// Copies the value of the parent to its child. Deletes the child before the parent.
async fn reconcile_child(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let maps = context.maps();
    let result = finalizer(&maps, "test.example/belonging", parent, |event| async {
        match event {
            Finalizing::Apply(parent) => {
                context.apply_child(&parent).await?;
                Ok(Action::await_change())
            }
            Finalizing::Cleanup(parent) => match context.delete(&child_name(&parent)).await {
                Err(error) if !is_not_found(&error) => Err(error),
                _ => Ok(Action::await_change()),
            },
        }
    });
    result.await.map_err(|error| match error {
        FinalizerError::Apply(error) | FinalizerError::Cleanup(error) => error,
        other => kube::Error::Service(other.to_string().into()),
    })
}

async fn run_correct_controller(connection: Connection) -> Result<(), TestError> {
    run_controller(connection, reconcile_child).await
}

#[test]
fn correct_controller_has_no_findings() -> Result<(), TestkitError> {
    let report = Sweep::new(run_correct_controller, create_change_delete_scenario).run()?;
    println!("{report}");
    report.check()?;
    for kind in RequestFaultKind::ALL {
        assert_eq!(report.runs_of(kind) > 0, kind != RequestFaultKind::LeadershipLost, "{kind}: {report}");
    }
    assert!(report.runs() > 40, "{report}");
    // The second creation is rejected because the object exists, so it causes no event that could be hidden.
    let unreached_faults: Vec<String> = report.unreached().iter().map(ToString::to_string).collect();
    assert_eq!(unreached_faults, ["unobserved controller #2 create /api/v1/namespaces/default/configmaps"]);
    Ok(())
}

/// Runs one of two processes that lead in turn and write while they lead.
async fn run_as_leader(connection: Connection) -> Result<(), TestError> {
    let election = LeaderElection::builder(&connection, "default", "mirror").start()?;
    let leader = election.until_leader().await.ok_or("the election was stopped")?;
    tokio::select! {
        biased;
        () = leader.until_lost() => Err("lost the leadership to another process".into()),
        result = run_controller_with(&connection, leader.client(), reconcile_child) => result,
    }
}

/// Changes the value twice. The lease expires between the changes, because it is not renewed.
pub(super) async fn change_twice_scenario(fixture: Fixture) -> Result<(), TestError> {
    create_parent(&fixture, "a").await?;
    fixture.settle().await?;
    change_parent(&fixture, "a", "2").await?;
    tokio::time::sleep(Duration::from_secs(18)).await;
    change_parent(&fixture, "a", "3").await?;
    Ok(fixture.settle().await?)
}

#[test]
fn correct_leader_has_no_findings() -> Result<(), TestkitError> {
    let report = Sweep::new(run_as_leader, change_twice_scenario)
        .processes(2)
        .repeats(2)
        .quiet(Duration::from_secs(40))
        .run()?;
    println!("{report}");
    assert!(report.runs_of(RequestFaultKind::LeadershipLost) > 3, "{report}");
    report.check()
}
