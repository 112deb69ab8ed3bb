//! The test cluster: it injects only declared faults, returns a complete history, and removes its objects.

use super::*;
use crate::TestError;
use steadfast_apiserver::ApiServer;
use steadfast_contract::Change;

#[tokio::test]
async fn undeclared_fault_is_rejected() -> Result<(), TestError> {
    let mut cluster = TestCluster::start(&ServerKind::Embedded, &[ServerFault::Kill]).await??;
    assert!(cluster.freeze(true).is_err_and(|error| error.to_string().contains("Freeze")));
    assert!(cluster.compact().await.is_err_and(|error| error.to_string().contains("Compact")));
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    Ok(cluster.end().await?)
}

#[tokio::test]
async fn unsupported_need_is_returned_before_start() -> Result<(), TestError> {
    let foreign = ServerKind::Other("/nowhere".into());
    let Ok(Err(unsupported)) = TestCluster::start(&foreign, &[ServerFault::Kill]).await else {
        return Err("it started".into());
    };
    assert_eq!(unsupported.to_string(), "Kill is not supported: faults are injected only into servers of our own");
    assert!(TestCluster::start(&foreign, &[]).await.is_err(), "the kubeconfig does not exist");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_cluster_uses_history_of_watch() -> Result<(), TestError> {
    let server = ApiServer::builder().tls(true).start().await?;
    let changes_of = |plural: &str| {
        let history = server.history();
        let changes: Vec<_> =
            history.changes_of("", plural).map(|change| (change.name.clone(), change.object.is_some())).collect();
        changes
    };
    let namespaces = changes_of("namespaces").len();
    let file = std::env::temp_dir().join(format!("steadfast-cluster-{}.yaml", std::process::id()));
    std::fs::write(&file, server.kubeconfig())?;
    let cluster = TestCluster::start(&ServerKind::Other(file.clone()), &[]).await?;
    std::fs::remove_file(&file)?;
    let mut cluster = cluster?;
    let group = format!("{}.steadfast.test", cluster.namespace());
    cluster.define(crate::widget_definition(&group)).await?;
    let recorder = cluster.recorder();
    let factory = steadfast::InformerFactory::new(&cluster.connection().await?);
    let recording = recorder.record(&factory.informer::<ConfigMap>(cluster.scope())?);
    recording.until_synced().await;
    cluster.network().cut();
    cluster.writer().create("a", "1").await?;
    cluster.writer().recreate("a", "2").await?;
    cluster.network().heal();
    cluster.settle(&recorder).await?;
    let history = cluster.history().await?;
    steadfast_contract::check(&history, &recorder.trace())?;
    check_agreement(&crate::history(&server, "", "configmaps")?, &history, cluster.namespace())?;
    assert_eq!(history.changes().len(), 3);
    cluster.end().await?;

    // The namespace remains in the state `Terminating` for a while.
    let is_deleted = || changes_of("namespaces").last().is_some_and(|(_, exists)| !exists);
    drop(crate::until(std::time::Duration::from_secs(20), is_deleted).await);
    let namespace_changes = changes_of("namespaces").split_off(namespaces);
    assert_eq!(namespace_changes.first().map(|(_, exists)| *exists), Some(true));
    assert_eq!(
        namespace_changes.last().map(|(_, exists)| *exists),
        Some(false),
        "the namespace was deleted: {namespace_changes:?}"
    );
    assert!(server.get("customresourcedefinitions", "", &format!("widgets.{group}")).is_err());
    Ok(())
}

#[test]
fn different_histories_are_detected() -> Result<(), TestError> {
    let history_of = |changes: &[Change]| {
        let mut history = History::new();
        changes.iter().cloned().for_each(|change| history.push(change));
        history
    };
    let created = Change::new(5, "u", Some("own"), "a", serde_json::json!({}));
    let in_other_namespace = Change::new(6, "v", Some("other"), "a", serde_json::json!({}));
    let deletion = Change::deleted(7, "u", Some("own"), "a");
    check_agreement(
        &history_of(&[created.clone(), in_other_namespace, deletion.clone()]),
        &history_of(&[created.clone(), deletion.clone()]),
        "own",
    )?;
    assert!(check_agreement(&history_of(&[created.clone(), deletion]), &history_of(&[created]), "own").is_err());
    Ok(())
}
