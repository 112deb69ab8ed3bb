//! The controller of kube-runtime.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use super::work::Work;
use crate::Trouble;

pub(super) struct Theirs {
    all: mpsc::UnboundedSender<()>,
    running: JoinHandle<()>,
}

impl Theirs {
    pub(super) fn start(config: kube::Config, concurrency: usize, work: Arc<Work>) -> Result<Self, Trouble> {
        let maps = Api::<ConfigMap>::namespaced(Client::try_from(config)?, "default");
        let (all, each) = mpsc::unbounded();
        let reconcile = |map: Arc<ConfigMap>, work: Arc<Work>| async move {
            work.call(&map).await;
            Ok::<_, std::convert::Infallible>(Action::await_change())
        };
        let policy = |_: Arc<ConfigMap>, _: &std::convert::Infallible, _: Arc<Work>| Action::await_change();
        let concurrency = u16::try_from(concurrency)?;
        let controller = Controller::new(maps, watcher::Config::default())
            .with_config(Config::default().concurrency(concurrency))
            .reconcile_all_on(each);
        let running = controller.run(reconcile, policy, work).for_each(|_| std::future::ready(()));
        Ok(Self { all, running: tokio::spawn(running) })
    }

    pub(super) fn all(&self) -> Result<(), Trouble> {
        Ok(self.all.unbounded_send(())?)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.running.abort();
    }
}
