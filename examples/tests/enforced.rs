//! Deploys the operator on a real API server that enforces the permissions of its manifests. The operator runs as a
//! separate process with a token of its own service account. The server's audit log shows denied requests.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use steadfast::{Connection, Informer, InformerFactory, ObjectKey, Scope};
use steadfast_testing::TestkitError;
use steadfast_testing::reference::{Reference, kubectl, skip};

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(60);

const HOME: &str = "site-operator";
const USER: &str = "system:serviceaccount:site-operator:site-operator";

/// Audit policy that logs each request once, with its response.
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
";

/// Temporary folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, TestkitError> {
        let folder = std::env::temp_dir().join(format!("steadfast-enforced-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the removal fails, a small folder remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Process of the operator, killed on drop.
struct Operator(Child);

impl Operator {
    fn start(kubeconfig: &Path, listen: &str) -> Result<Self, TestkitError> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_operator"));
        command.arg("--infer").env("KUBECONFIG", kubeconfig).env("LISTEN", listen).env_remove("POD_NAME");
        Ok(Self(command.spawn()?))
    }

    /// Terminates the process as a kubelet does.
    async fn terminate(mut self) -> Result<(), TestkitError> {
        let status = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.0.id())]).status()?;
        assert!(status.success());
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            if let Some(status) = self.0.try_wait()? {
                return if status.success() { Ok(()) } else { Err(format!("the operator ended with {status}").into()) };
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("the operator did not end within {TIMEOUT:?}").into())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a kubeconfig with a token of the operator's service account, as the server issues it for a pod.
async fn as_operator(reference: &Reference, admin: &Client, file: &Path) -> Result<Connection, TestkitError> {
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), HOME);
    let response = accounts.create_token_request(HOME, &PostParams::default(), &TokenRequest::default()).await?;
    let token = response.status.ok_or("the response to the token request has no token")?.token;
    let mut config: Value = serde_json::to_value(Kubeconfig::read_from(reference.kubeconfig())?)?;
    let cluster = config["clusters"][0]["name"].clone();
    config["users"] = json!([{ "name": HOME, "user": { "token": token } }]);
    // Sets the namespace that the pod would have.
    let context = json!({ "cluster": cluster, "user": HOME, "namespace": HOME });
    config["contexts"] = json!([{ "name": HOME, "context": context }]);
    config["current-context"] = json!(HOME);
    fs::write(file, config.to_string())?;
    let config = Kubeconfig::read_from(file)?;
    Ok(Connection::new(kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?)
}

fn site(name: &str, pages: usize) -> DynamicObject {
    let mut site = DynamicObject::new(name, &sites());
    site.data = json!({ "spec": { "pages": pages } });
    site
}

fn sites() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("shop.example", "v1", "Site"), "sites")
}

/// Returns the number of the operator's requests in the audit log, by status code and request.
fn responses(log: &Path) -> Result<BTreeMap<(u64, String), usize>, TestkitError> {
    let mut responses = BTreeMap::new();
    for line in fs::read_to_string(log)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        if event["user"]["username"] != USER {
            continue;
        }
        let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let requested = format!("{} {}/{}", text("/verb"), text("/objectRef/apiGroup"), text("/objectRef/resource"));
        *responses.entry((code, requested)).or_default() += 1;
    }
    Ok(responses)
}

async fn until_ready(sites: &Informer<DynamicObject>, ready: u64) -> Result<(), TestkitError> {
    let is_ready = |site: Option<&DynamicObject>| site.is_some_and(|site| site.data["status"]["ready"] == json!(ready));
    sites.until_object(&ObjectKey::namespaced("shops", "shop"), is_ready, TIMEOUT).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_role_suffices_on_enforcing_server() -> Result<(), TestkitError> {
    let folder = Folder::new()?;
    let (policy, log) = (folder.file("policy.yaml"), folder.file("audit.log"));
    fs::write(&policy, POLICY)?;
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let Some(kubectl) = kubectl()? else { return skip("kubectl was not found; set $KUBECTL to its path") };
    let Some(reference) = Reference::start_with_flags(&[&flags[0], &flags[1]]).await? else { return Ok(()) };
    let admin = reference.connection().await?;
    let client = admin.client();

    // The deployment uses the same commands as a user.
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/operator/manifests");
    for arguments in [
        &["apply", "-f", manifests][..],
        &["wait", "--for=condition=Established", "crd/sites.shop.example"],
        &["create", "namespace", "shops"],
    ] {
        let status = Command::new(&kubectl).arg("--kubeconfig").arg(reference.kubeconfig()).args(arguments).status()?;
        assert!(status.success(), "kubectl {arguments:?}: {status}");
    }
    let kubeconfig = folder.file("kubeconfig");
    let operator = as_operator(&reference, &client, &kubeconfig).await?;
    // Shows that the server denies requests without permission.
    let nodes = Api::<Node>::all(operator.client()).list(&ListParams::default()).await;
    assert!(matches!(&nodes, Err(kube::Error::Api(status)) if status.code == 403), "{nodes:?}");

    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let operator = Operator::start(&kubeconfig, &listen)?;
    let factory = InformerFactory::new(&admin);
    let seen = factory.informer_with::<DynamicObject>(&sites(), Scope::namespace("shops"))?;
    let shops = Api::<DynamicObject>::namespaced_with(client.clone(), "shops", &sites());
    let pages = Api::<ConfigMap>::namespaced(client.clone(), "shops");
    shops.create(&PostParams::default(), &site("shop", 3)).await?;
    until_ready(&seen, 3).await?;
    let resize = |pages: usize| Patch::Merge(json!({ "spec": { "pages": pages } }));
    shops.patch("shop", &PatchParams::default(), &resize(5)).await?;
    until_ready(&seen, 5).await?;
    shops.patch("shop", &PatchParams::default(), &resize(2)).await?;
    until_ready(&seen, 2).await?;
    shops.delete("shop", &DeleteParams::default()).await?;
    seen.until_object(&ObjectKey::namespaced("shops", "shop"), |site| site.is_none(), TIMEOUT).await?;
    let left = pages.list(&ListParams::default().fields("metadata.name!=kube-root-ca.crt")).await?;
    assert!(left.items.is_empty(), "{left:?}");

    operator.terminate().await?;
    let lease = Api::<Lease>::namespaced(client, HOME).get(HOME).await?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert_eq!(holder, "", "the lease was not released");
    let responses = responses(&log)?;
    let rejected: Vec<_> = responses.keys().filter(|(code, _)| [401, 403].contains(code)).collect();
    assert_eq!(
        rejected,
        [&(403, "list /nodes".to_owned())],
        "denied requests of the operator, with the one expected denial"
    );
    for done in ["list shop.example/sites", "delete /configmaps", "update coordination.k8s.io/leases"] {
        assert!(responses.contains_key(&(200, done.to_owned())), "{done}: {responses:#?}");
    }
    assert!(responses.contains_key(&(201, "create events.k8s.io/events".to_owned())), "{responses:#?}");
    Ok(())
}
