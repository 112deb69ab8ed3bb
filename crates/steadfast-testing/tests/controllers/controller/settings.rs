//! Valid and invalid settings of a controller.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use steadfast::{Lazy, Scope};
use steadfast_controller::{Action, Controller, RunError, RunningController, back_off};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance};

fn start(controller: Controller<ConfigMap>) -> Result<RunningController, RunError> {
    controller.run(|_, _| async { Ok::<_, Failure>(Action::await_change()) }, back_off, Arc::new(()))
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_rejected_with_advice() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let controller = || Controller::<ConfigMap>::new(&fixture.factory, Scope::all());
    let start_error = |controller| start(controller).map(drop).map_err(|error| error.to_string());
    assert_eq!(
        start_error(controller().concurrency(0)),
        Err("cannot start the controller: concurrency is 0; set concurrency to 1 or more".into())
    );
    assert_eq!(
        start_error(controller().timeout(Duration::ZERO)),
        Err("cannot start the controller: timeout is 0; set timeout to more than 0, or to `None`".into())
    );
    let nodes = start_error(controller().owns::<Node>(Scope::namespace("default")));
    assert!(
        nodes.is_err_and(|error| error.contains("nodes")),
        "a namespace scope is invalid for a cluster-scoped kind"
    );
    let in_namespace_a = || Controller::<ConfigMap>::new(&fixture.factory, Scope::namespace("a"));
    assert_eq!(
        start_error(in_namespace_a().owns::<Secret>(Scope::namespace("b"))),
        Err("cannot start the controller: secrets in namespace b cannot be owned by configmaps in namespace a: a \
             namespaced owner is in the namespace of its children; request both in the same scope, or use `watches` with a \
             custom mapping"
            .into())
    );
    assert!(
        start_error(in_namespace_a().owns::<Node>(Scope::all()))
            .is_err_and(|error| error.contains("nodes in all namespaces cannot"))
    );
    assert_eq!(start_error(in_namespace_a().owns::<Secret>(Scope::all())), Ok(()));
    assert_eq!(start_error(controller().owns::<Secret>(Scope::namespace("b"))), Ok(()));
    let factory = fixture.factory.clone();
    let outside_runtime = std::thread::spawn(move || start(Controller::new(&factory, Scope::all())).map(drop));
    assert_eq!(outside_runtime.join().ok(), Some(Err(RunError::NoRuntime)));
    fixture.factory.shutdown();
    assert!(start_error(controller()).is_err_and(|error| error.contains("shut down")), "the factory was shut down");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn controller_type_selects_cached_form() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let (lazy, dynamic) = (log.clone(), log.clone());
    let _lazy = Controller::<Lazy<ConfigMap>>::new(&fixture.factory, Scope::all()).run(
        move |map: Arc<Lazy<ConfigMap>>, _| {
            let name = map.get().map(|map| map.name_any());
            lazy.record(format!("lazy {name:?}"));
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let informer = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let _dynamic = Controller::<DynamicObject>::new_with(&fixture.factory, kind, informer).run(
        move |map: Arc<DynamicObject>, _| {
            dynamic.record(format!("dynamic {}", map.name_any()));
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    let mut entries = log.all();
    entries.sort_unstable();
    assert_eq!(entries, ["dynamic a", "lazy Ok(\"a\")"]);
    Ok(())
}
