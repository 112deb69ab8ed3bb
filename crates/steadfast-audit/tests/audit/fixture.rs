//! An embedded server with its audit.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_audit::{
    Audit, AuditEndpoint, AuditFinding, AuditFindingKind, AuditFindingState, AuditResource, AuditSettings,
};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{InMemory, TestError, config_map};
use tokio::time::{Instant, sleep};

/// Time until all watches are open.
const START: Duration = Duration::from_secs(60);

/// Resources of the tests: plural, kind.
const RESOURCES: [(&str, &str); 4] =
    [("configmaps", "ConfigMap"), ("secrets", "Secret"), ("serviceaccounts", "ServiceAccount"), ("pods", "Pod")];

/// A finding with its time.
pub(crate) type TimedFinding = (Instant, AuditFinding);

/// Server, audit and findings.
pub(crate) struct Fixture {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) audit: Audit,
    /// Networks by endpoint.
    pub(crate) networks: Vec<NetworkFaults>,
    findings: Arc<Mutex<Vec<TimedFinding>>>,
}

impl Fixture {
    /// Starts a server with `replicas` and its audit of the first `resources` resources, and waits for the watches.
    pub(crate) async fn start(replicas: usize, resources: usize) -> Result<Self, TestError> {
        Self::start_server(ApiServer::builder(), replicas, resources).await
    }

    pub(crate) async fn start_server(
        builder: ApiServerBuilder,
        replicas: usize,
        resources: usize,
    ) -> Result<Self, TestError> {
        let server = Arc::new(builder.in_memory().replicas(replicas).start().await?);
        for number in 0..20 {
            server.create(&config_map(&format!("initial-{number}"), "1"))?;
        }
        let (mut endpoints, mut networks) = (Vec::new(), Vec::new());
        for replica in 0..replicas {
            let network = NetworkFaults::new();
            network.send_to(replica);
            let in_memory = InMemory { network: network.clone(), ..InMemory::default() };
            let connection = in_memory.connection(&server).await?;
            endpoints.push(AuditEndpoint { name: format!("endpoint-{replica}"), connection });
            networks.push(network);
        }
        let resources = RESOURCES[..resources]
            .iter()
            .map(|(plural, _)| AuditResource { name: (*plural).to_owned(), path: format!("/api/v1/{plural}") });
        let findings: Arc<Mutex<Vec<TimedFinding>>> = Arc::default();
        let reported = findings.clone();
        let on_finding = move |finding: &AuditFinding| reported.lock().push((Instant::now(), finding.clone()));
        let audit = Audit::start(endpoints, resources.collect(), AuditSettings::default(), on_finding);
        sleep(START).await;
        let fixture = Self { server, audit, networks, findings };
        let stats = fixture.audit.stats();
        assert!(stats.endpoints.iter().flat_map(|it| &it.streams).all(|stream| stream.is_open), "{stats:#?}");
        assert_eq!(fixture.finding_texts(), Vec::<String>::new());
        Ok(fixture)
    }

    /// Creates an object of a resource.
    pub(crate) fn create(&self, resource: usize, name: &str) {
        let (plural, kind) = RESOURCES[resource];
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        if plural == "pods" {
            object["spec"] = json!({"containers": [{"name": "a", "image": "b"}]});
        }
        self.server.create(&object).expect("a new object");
    }

    /// Changes an object of a resource.
    pub(crate) fn change(&self, resource: usize, name: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {"value": value}}});
        self.server.merge_patch(RESOURCES[resource].0, "default", name, patch).expect("an existing object");
    }

    /// Deletes an object of a resource.
    pub(crate) fn delete(&self, resource: usize, name: &str) {
        self.server.delete_named(RESOURCES[resource].0, "default", name).expect("an existing object");
    }

    pub(crate) fn findings(&self) -> Vec<TimedFinding> {
        self.findings.lock().clone()
    }

    pub(crate) fn finding_texts(&self) -> Vec<String> {
        self.findings().iter().map(|(_, finding)| finding.to_string()).collect()
    }

    /// Returns the kinds, endpoints and resources of all started findings.
    pub(crate) fn started(&self) -> Vec<(AuditFindingKind, String, Option<String>)> {
        let findings = self.findings();
        let started = findings.iter().filter(|(_, finding)| finding.state == AuditFindingState::Started);
        started.map(|(_, finding)| (finding.kind, finding.endpoint.clone(), finding.resource.clone())).collect()
    }

    /// Waits until a finding of this kind and endpoint starts, and returns the elapsed time.
    pub(crate) async fn wait_for(&self, kind: AuditFindingKind, endpoint: usize, limit: Duration) -> Duration {
        self.wait(kind, endpoint, limit, |state| state == AuditFindingState::Started).await
    }

    /// Waits until a finding of this kind and endpoint ends.
    pub(crate) async fn wait_for_end(&self, kind: AuditFindingKind, endpoint: usize, limit: Duration) -> Duration {
        self.wait(kind, endpoint, limit, |state| state != AuditFindingState::Started).await
    }

    async fn wait(
        &self,
        kind: AuditFindingKind,
        endpoint: usize,
        limit: Duration,
        is_wanted: impl Fn(AuditFindingState) -> bool,
    ) -> Duration {
        let (start, endpoint) = (Instant::now(), format!("endpoint-{endpoint}"));
        loop {
            let is_found = self.findings().iter().any(|(at, finding)| {
                *at >= start && finding.kind == kind && finding.endpoint == endpoint && is_wanted(finding.state)
            });
            if is_found {
                return start.elapsed();
            }
            assert!(
                start.elapsed() <= limit,
                "no {kind:?} of {endpoint} within {limit:?}: {:#?}",
                self.finding_texts()
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
}
