//! Controllers with a cache that is restored from a checkpoint.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steadfast::{Lazy, ObjectKey, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_controller::{Action, Controller, StalePolicy, back_off};
use steadfast_testing::{TestError, config_map};

use crate::files::Folder;
use crate::program_run::ProgramRun;

/// Regression test: a restored cache counted as synced, so the controller resumed on data of unknown age.
#[tokio::test(start_paused = true)]
async fn controller_resumes_only_on_fresh_cache() -> Result<(), TestError> {
    let folder = Folder::new("controller")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    program.settle(&server).await?;
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let reconciled = log.clone();
    let controller = Controller::<Lazy<ConfigMap>>::new(&program.factory, program.informer.clone())
        .stale_policy(StalePolicy::pause_after(Duration::from_secs(5)))
        .run_by_key(
            move |key: ObjectKey, _: Arc<()>| {
                reconciled.lock().push(key.name().to_owned());
                async { Ok::<_, std::fmt::Error>(Action::await_change()) }
            },
            back_off,
            Arc::new(()),
        )?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(std::mem::take(&mut *log.lock()), ["a"]);
    program.informer.stop();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(controller.stats().paused, "a stopped cache is not reliable");

    server.faults().respond(RequestRule::any().resource("configmaps"), InjectedResponse::code(500));
    let restored = program
        .factory
        .builder::<Lazy<ConfigMap>>(Scope::namespace("default"))
        .checkpoint(&program.checkpoint)
        .start()?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(restored.has_synced() && !restored.freshness().is_fresh(), "{}", restored.freshness());
    assert!(controller.stats().paused, "a restored cache is not reliable before it is fresh");
    assert_eq!(*log.lock(), [""; 0]);

    server.faults().clear_rules();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(restored.freshness().is_fresh() && !controller.stats().paused, "{}", restored.freshness());
    assert!(!log.lock().is_empty(), "all keys are reconciled");
    Ok(())
}
