//! Coordinated elections on kube-apiserver, and on a server without a coordinator.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast::{Connection, kube};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{CandidateVersions, ElectionError, LeaderElection};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;
use tokio::time::timeout;

const SERVER_FLAGS: [&str; 2] =
    ["--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"];

/// Timeout for expected events on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(90);

async fn start_candidate(connection: &Connection, version: &str) -> Result<LeaderElection, ElectionError> {
    let builder = LeaderElection::builder(connection, "default", "it").identity(version);
    builder.coordinated(CandidateVersions::new(version)).start().await
}

async fn wait_until_leader(election: &LeaderElection) -> Result<(), TestError> {
    let leader = timeout(EVENT_TIMEOUT, election.until_leader()).await;
    let leader = leader.map_err(|_| format!("{} does not lead after {EVENT_TIMEOUT:?}", election.identity()))?;
    leader.map(drop).ok_or_else(|| "it was stopped".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_version_leads_then_next() -> Result<(), TestError> {
    let Some(reference) = Reference::start_with_flags(&SERVER_FLAGS).await? else { return Ok(()) };
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(reference.connection().await?);
    }
    let candidate_1_3 = start_candidate(&connections[0], "1.3.0").await?;
    wait_until_leader(&candidate_1_3).await?;
    let candidate_1_2 = start_candidate(&connections[1], "1.2.0").await?;
    wait_until_leader(&candidate_1_2).await?;
    assert!(!candidate_1_3.is_leader(), "the newer candidate yielded the lease");
    let candidate_1_4 = start_candidate(&connections[2], "1.4.0").await?;
    assert!(candidate_1_2.stop().await, "the older candidate led");
    wait_until_leader(&candidate_1_3).await?;
    assert!(!candidate_1_2.is_leader() && !candidate_1_4.is_leader());
    let leases: Api<Lease> = Api::namespaced(connections[0].client(), "default");
    let spec = leases.get("it").await?.spec.unwrap_or_default();
    assert_eq!(spec.holder_identity.as_deref(), Some(candidate_1_3.identity()));
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
    assert!(candidate_1_3.stop().await && !candidate_1_4.stop().await);
    Ok(())
}

#[tokio::test]
async fn server_without_coordination_is_reported_early() -> Result<(), TestError> {
    let server = ApiServer::builder().start().await?;
    let file = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let connection = Connection::new(config)?;
    let error = start_candidate(&connection, "1.2.0").await.expect_err("no candidate could ever lead");
    assert_eq!(error, ElectionError::NotCoordinated);
    assert!(error.to_string().contains("--feature-gates=CoordinatedLeaderElection=true"), "{error}");
    Ok(())
}
