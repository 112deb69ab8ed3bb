//! Position of a durable handler: the lowest version that may be unacknowledged.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::DurableRegistration;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map};

use crate::durable::{HandlerAction, Log, register_durable_handler};
use crate::files::Folder;
use crate::program_run::ProgramRun;

/// Returns the first pending version, or 0.
fn first_pending(registration: &DurableRegistration<ConfigMap>) -> u64 {
    let first = registration.position().and_then(|position| position.first_pending);
    first.and_then(|first| first.as_str().parse().ok()).unwrap_or(0)
}

/// A standby may have received the versions that a list of the leader skips. It must not drop them.
#[tokio::test(start_paused = true)]
async fn position_precedes_versions_skipped_by_list() -> Result<(), TestError> {
    let folder = Folder::new("position")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    register_durable_handler(&program, &Log::default(), |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let path = program.simulate_kill(&folder)?;
    let skipped = server.revision() + 1;
    server.replace(&config_map("a", "2"))?;
    server.replace(&config_map("a", "3"))?;
    server.compact();
    server.faults().expire_events();

    let program = ProgramRun::start(&server, &path, 2).await?;
    let registration = register_durable_handler(&program, &Log::default(), |_| HandlerAction::NeverReturn)?;
    program.settle(&server).await?;
    let first = first_pending(&registration);
    assert!((1..=skipped).contains(&first), "{first} follows the skipped version {skipped}");

    // The version is stored with the pending delivery.
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 3).await?;
    let registration = register_durable_handler(&program, &Log::default(), |_| HandlerAction::NeverReturn)?;
    program.settle(&server).await?;
    assert_eq!(first_pending(&registration), first);
    Ok(())
}
