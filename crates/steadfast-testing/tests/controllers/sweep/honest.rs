//! Controllers without a bug: no fault changes the final state.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::Connection;
use steadfast_controller::{Action, FinalizerError, Finalizing, LeaderElection, finalizer};
use steadfast_testing::sweep::{DisturbanceKind, Fixture, Sweep};
use steadfast_testing::{Error, WorldError};

use super::{Context, belonging, change_parent, comes_and_goes, is_gone, make_parent, operate, operate_with};

/// Keeps the child of a parent at the parent's value, and deletes it before the parent.
async fn mirror(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let maps = context.maps();
    let done = finalizer(&maps, "test.example/belonging", parent, |event| async {
        match event {
            Finalizing::Apply(parent) => {
                context.keep(&parent).await?;
                Ok(Action::await_change())
            }
            Finalizing::Cleanup(parent) => match context.take_away(&belonging(&parent)).await {
                Err(error) if !is_gone(&error) => Err(error),
                _ => Ok(Action::await_change()),
            },
        }
    });
    done.await.map_err(|error| match error {
        FinalizerError::Apply(error) | FinalizerError::Cleanup(error) => error,
        other => kube::Error::Service(other.to_string().into()),
    })
}

async fn correct(connection: Connection) -> Result<(), WorldError> {
    operate(connection, mirror).await
}

#[test]
fn correct_controller_has_no_findings() -> Result<(), Error> {
    let report = Sweep::new(correct, comes_and_goes).run()?;
    println!("{report}");
    report.check()?;
    for kind in DisturbanceKind::ALL {
        assert_eq!(report.runs_of(kind) > 0, kind != DisturbanceKind::LeadershipLost, "{kind}: {report}");
    }
    assert!(report.runs() > 40, "{report}");
    // The second creation is rejected because the object exists, so it causes no event that could be hidden.
    let unreached: Vec<String> = report.unreached().iter().map(ToString::to_string).collect();
    assert_eq!(unreached, ["unobserved controller #2 create /api/v1/namespaces/default/configmaps"]);
    Ok(())
}

/// One of two processes that lead in turn and write while they lead.
async fn led(connection: Connection) -> Result<(), WorldError> {
    let election = LeaderElection::builder(&connection, "default", "mirror").start()?;
    let leader = election.until_leader().await.ok_or("the election was stopped")?;
    tokio::select! {
        biased;
        () = leader.lost() => Err("lost the leadership to another process".into()),
        ended = operate_with(&connection, leader.client(), mirror) => ended,
    }
}

/// Changes the value twice. The lease expires between the changes, because it is not renewed.
pub(super) async fn changes_twice(fixture: Fixture) -> Result<(), WorldError> {
    make_parent(&fixture, "a").await?;
    fixture.settle().await?;
    change_parent(&fixture, "a", "2").await?;
    tokio::time::sleep(Duration::from_secs(18)).await;
    change_parent(&fixture, "a", "3").await?;
    Ok(fixture.settle().await?)
}

#[test]
fn correct_leader_has_no_findings() -> Result<(), Error> {
    let report = Sweep::new(led, changes_twice).processes(2).alike(2).quiet(Duration::from_secs(40)).run()?;
    println!("{report}");
    assert!(report.runs_of(DisturbanceKind::LeadershipLost) > 3, "{report}");
    report.check()
}
