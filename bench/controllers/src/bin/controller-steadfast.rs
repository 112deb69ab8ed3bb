//! The controller of Steadfast.

use std::process::ExitCode;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Connection, InformerFactory, ObjectKey, Scope};
use steadfast_bench_controllers::{BenchError, ControllerUnderTest, Work, run};
use steadfast_controller::{Action, Controller, RunningController, back_off};
use tokio::runtime::Handle;

struct SteadfastController {
    controller: RunningController,
    keys: Vec<ObjectKey>,
    // This field is declared last, so that it is dropped after the controller.
    _factory: InformerFactory,
}

impl ControllerUnderTest for SteadfastController {
    fn start(config: kube::Config, objects: usize, concurrency: usize, work: Arc<Work>) -> Result<Self, BenchError> {
        let connection = Connection::new(config)?;
        // The writes share the connection of the informers and the runtime of the reconciles, as in a user's program.
        work.set_client(|| connection.client_on(&Handle::current()));
        let factory = InformerFactory::new(&connection);
        let reconcile = |map: Arc<ConfigMap>, work: Arc<Work>| async move {
            work.call(&map).await.map(|()| Action::await_change())
        };
        let controller = Controller::<ConfigMap>::new(&factory, Scope::namespace("default")).concurrency(concurrency);
        let controller = controller.run(reconcile, back_off, work)?;
        let keys = (0..objects).map(|number| ObjectKey::namespaced("default", format!("map-{number}"))).collect();
        Ok(Self { controller, keys, _factory: factory })
    }

    fn enqueue_all(&self) -> Result<(), BenchError> {
        for key in &self.keys {
            self.controller.queue().add(key.clone());
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run::<SteadfastController>().await
}
