//! The controller of Steadfast.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Connection, InformerFactory, ObjectKey, Scope};
use steadfast_controller::{Action, Controller, RunningController, back_off};

use super::work::Work;
use crate::Trouble;

pub(super) struct Ours {
    controller: RunningController,
    keys: Vec<ObjectKey>,
    // After the controller.
    _factory: InformerFactory,
}

impl Ours {
    pub(super) fn start(
        config: kube::Config,
        keys: usize,
        concurrency: usize,
        work: Arc<Work>,
    ) -> Result<Self, Trouble> {
        let factory = InformerFactory::new(&Connection::new(config)?);
        let reconcile = |map: Arc<ConfigMap>, work: Arc<Work>| async move {
            work.call(&map).await;
            Ok::<_, std::convert::Infallible>(Action::await_change())
        };
        let controller = Controller::<ConfigMap>::new(&factory, Scope::namespace("default")).concurrency(concurrency);
        let controller = controller.run(reconcile, back_off, work)?;
        let keys = (0..keys).map(|number| ObjectKey::namespaced("default", format!("map-{number}"))).collect();
        Ok(Self { controller, keys, _factory: factory })
    }

    pub(super) fn all(&self) {
        for key in &self.keys {
            self.controller.queue().add(key.clone());
        }
    }
}
