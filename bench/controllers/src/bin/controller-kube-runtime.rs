//! The controller of kube-runtime.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client};
use steadfast_bench_controllers::{BenchError, ControllerUnderTest, Work, run};
use tokio::task::JoinHandle;

/// Requeue delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

struct KubeRuntimeController {
    enqueue_all_sender: mpsc::UnboundedSender<()>,
    task: JoinHandle<()>,
}

impl ControllerUnderTest for KubeRuntimeController {
    fn start(config: kube::Config, _: usize, concurrency: usize, work: Arc<Work>) -> Result<Self, BenchError> {
        let client = Client::try_from(config)?;
        work.set_client(|| client.clone());
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        let (enqueue_all_sender, enqueue_all_signals) = mpsc::unbounded();
        let reconcile = |map: Arc<ConfigMap>, work: Arc<Work>| async move {
            work.call(&map).await.map(|()| Action::await_change())
        };
        let policy = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Work>| Action::requeue(RETRY_DELAY);
        let concurrency = u16::try_from(concurrency)?;
        let controller = Controller::new(maps, watcher::Config::default())
            .with_config(Config::default().concurrency(concurrency))
            // Without an unstable feature, the library cannot enqueue single keys. Each round therefore enqueues all
            // objects through this trigger.
            .reconcile_all_on(enqueue_all_signals);
        let running = controller.run(reconcile, policy, work).for_each(|_| std::future::ready(()));
        Ok(Self { enqueue_all_sender, task: tokio::spawn(running) })
    }

    fn enqueue_all(&self) -> Result<(), BenchError> {
        Ok(self.enqueue_all_sender.unbounded_send(())?)
    }
}

impl Drop for KubeRuntimeController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run::<KubeRuntimeController>().await
}
