//! Real API server with its etcd, a second API server with an optional stale cache, and a fault-injecting network
//! before both.

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use steadfast_testing::TestkitError;
use steadfast_testing::proxy::{Direction, FaultProxy};
use steadfast_testing::reference::Reference;
use tokio::runtime::{Handle, Runtime};

use super::cluster::Phase;
use super::disturbance::Disturbance;

/// User of the program, with revocable permissions.
const USER: &str = "story";

/// Index of the second API server.
const STALE_SERVER: usize = 1;

pub(super) struct Real {
    runtime: Handle,
    reference: Reference,
    /// Proxy between the program and both API servers.
    network: FaultProxy,
    /// Proxy between the second API server and etcd.
    to_etcd: FaultProxy,
    client: Client,
    /// Revision of the store's backup.
    backup_revision: u64,
}

impl Real {
    pub(super) fn start(runtime: &Runtime) -> Option<Self> {
        let start_result = runtime.block_on(start());
        let (reference, network, to_etcd, client) = start_result.expect("the real server starts")?;
        Some(Self { runtime: runtime.handle().clone(), reference, network, to_etcd, client, backup_revision: 0 })
    }

    /// Returns the kubeconfig of the first server, with the address of the network and a read-only user.
    pub(super) fn kubeconfig(&self) -> String {
        let mut file = Kubeconfig::read_from(self.reference.kubeconfig()).expect("the server wrote it");
        for cluster in &mut file.clusters {
            let cluster = cluster.cluster.as_mut().expect("the server wrote it");
            cluster.server = Some(format!("https://{}", self.network.address()));
        }
        for user in &mut file.auth_infos {
            user.auth_info.as_mut().expect("the server wrote it").impersonate = Some(USER.to_owned());
        }
        serde_json::to_string(&file).expect("valid JSON")
    }

    fn api(&self, kind: &str, resource: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", kind), resource);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    fn api_of_resource(&self, resource: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = match resource {
            "services" => "Service",
            "configmaps" => "ConfigMap",
            _ => "Pod",
        };
        self.api(kind, resource, namespace)
    }

    pub(super) fn apply(&self, object: &Value, resource: &str) -> Result<(), String> {
        let text = |error: kube::Error| error.to_string();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let dynamic: DynamicObject = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        if object["kind"] == "Namespace" {
            let kind = GroupVersionKind::gvk("", "v1", "Namespace");
            let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            return self.runtime.block_on(namespaces.create(&PostParams::default(), &dynamic)).map(drop).map_err(text);
        }
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let api = self.api_of_resource(resource, namespace);
        self.runtime
            .block_on(async {
                // Most fields of a pod cannot be changed.
                let create_result = api.create(&PostParams::default(), &dynamic).await;
                if matches!(&create_result, Err(kube::Error::Api(status)) if status.code == 409) {
                    let patch =
                        json!({"metadata": {"annotations": object["metadata"]["annotations"]}, "data": object["data"]});
                    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                    return Ok(());
                }
                create_result.map(drop)
            })
            .map_err(text)?;
        if object["status"].is_null() { Ok(()) } else { self.set_status(namespace, name, &object["status"]) }
    }

    pub(super) fn set_status(&self, namespace: &str, name: &str, status: &Value) -> Result<(), String> {
        let patch = Patch::Merge(json!({"status": status}));
        let pods = self.api_of_resource("pods", namespace);
        let patch_result = self.runtime.block_on(pods.patch_status(name, &PatchParams::default(), &patch));
        patch_result.map(drop).map_err(|error| error.to_string())
    }

    pub(super) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let api = self.api_of_resource(resource, namespace);
        let object = self.runtime.block_on(api.get_opt(name)).expect("the server responds");
        object.map(|object| serde_json::to_value(object).expect("valid JSON"))
    }

    pub(super) fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<(), String> {
        let api = self.api_of_resource(resource, namespace);
        let delete_result = self.runtime.block_on(api.delete(name, &DeleteParams::default()));
        delete_result.map(drop).map_err(|error| error.to_string())
    }

    pub(super) fn back_up(&mut self) {
        self.backup_revision = self.runtime.block_on(self.reference.back_up()).expect("a backup");
    }

    pub(super) fn restore(&mut self) {
        self.runtime.clone().block_on(async {
            self.reference.restore(self.backup_revision).await.expect("the backup is restored");
            for server in [0, STALE_SERVER] {
                self.reference.start_again(server).await.expect("the server starts again");
            }
        });
        self.renew_client();
    }

    /// Opens a new connection. A client never retries a write, so no write may be the first request on a dead
    /// connection.
    fn renew_client(&mut self) {
        self.client = self.runtime.block_on(self.reference.connection()).expect("a connection").client();
    }

    fn start_again(&mut self) {
        let runtime = self.runtime.clone();
        runtime.block_on(self.reference.start_again(0)).expect("the server starts again");
        self.renew_client();
    }

    pub(super) fn disturb(&mut self, disturbance: Disturbance, phase: Phase) {
        let network = self.network.faults().clone();
        let is_start = phase == Phase::Start;
        match (disturbance, phase) {
            (Disturbance::Restart, Phase::Start) => {
                self.reference.kill(0);
                self.start_again();
            }
            (Disturbance::ConnectionsRefused, Phase::Start) => {
                network.refuse(true);
                network.reset();
            }
            (Disturbance::ConnectionsRefused, Phase::End) => network.refuse(false),
            (Disturbance::BlackHole, Phase::Start | Phase::End) => network.black_hole(Direction::Both, is_start),
            (Disturbance::Frozen, Phase::Start | Phase::End) => {
                self.reference.freeze(0, is_start).expect("the server runs");
                if !is_start {
                    self.renew_client();
                }
            }
            // The second server stops following etcd, and the proxy sends the program to this server.
            (Disturbance::CacheLagging | Disturbance::CacheLaggingThenReset, Phase::Start | Phase::End) => {
                self.to_etcd.faults().black_hole(Direction::ToClient, is_start);
                network.send_to(usize::from(is_start));
                if is_start && disturbance == Disturbance::CacheLagging {
                    network.reset();
                }
            }
            (Disturbance::VersionExpired, Phase::Start) => network.cut(),
            // A server that has just been started knows no events from before.
            (Disturbance::VersionExpired, Phase::Worsen) => {
                self.reference.kill(0);
                self.start_again();
                network.heal();
            }
            (Disturbance::ConnectionsReset, Phase::Start) | (Disturbance::CacheLaggingThenReset, Phase::Worsen) => {
                network.reset();
            }
            (Disturbance::ServiceUnavailable, Phase::Start | Phase::End) => {
                self.reference.freeze_etcd(is_start).expect("etcd runs");
                if !is_start {
                    self.renew_client();
                }
            }
            (Disturbance::Forbidden, Phase::Start) => {
                self.forbid();
                network.reset();
            }
            (Disturbance::Forbidden, Phase::End) => self.allow(),
            _ => {}
        }
    }

    fn forbid(&self) {
        let kinds = ["ClusterRoleBinding", "ClusterRole"];
        for kind in kinds {
            let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            let delete_result = self.runtime.block_on(api.delete(&format!("{USER}-pods."), &DeleteParams::default()));
            delete_result.expect("the object exists");
        }
    }

    fn allow(&self) {
        self.runtime.block_on(allow(&self.reference)).expect("rights for the program");
    }
}

async fn allow(reference: &Reference) -> Result<(), TestkitError> {
    reference.allow(USER, &["get", "list", "watch"], "", "pods").await
}

async fn start() -> Result<Option<(Reference, FaultProxy, FaultProxy, Client)>, TestkitError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(None) };
    let to_etcd = FaultProxy::start([reference.etcd_address()?])?;
    let stale = reference.start_another_with_flags(&[], Some(to_etcd.address())).await?;
    assert_eq!(stale, STALE_SERVER);
    let network = FaultProxy::start([reference.address(0), reference.address(STALE_SERVER)])?;
    allow(&reference).await?;
    let client = reference.connection().await?.client();
    Ok(Some((reference, network, to_etcd, client)))
}
