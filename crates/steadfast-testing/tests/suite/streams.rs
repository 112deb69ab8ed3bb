//! Lists and changes without a cache, directly from a server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::{Changes, List, ResourceVersion, StreamError, WatchEvent, list, watch_from};
use steadfast_testing::TestError;
use steadfast_testing::cluster::TestCluster;
use tokio::time::timeout;

use super::EVENT_TIMEOUT;

super::scenarios! {
    expired_paged_list_loses_no_object:
        needs [Compact, UncachedPages], covers [ContinueTokenExpired];
    watch_survives_cut_and_reports_expiry:
        needs [Kill], covers [ServerRestarts];
}

fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get("value")).map_or("", String::as_str)
}

/// Returns the next event of `changes` other than a bookmark, as `Modified a=2`.
async fn next_change(changes: &mut Changes<ConfigMap>) -> Result<String, TestError> {
    loop {
        let (name, object) = match timeout(EVENT_TIMEOUT, changes.next()).await?.ok_or("the stream has ended")?? {
            WatchEvent::Added(object) => ("Added", object),
            WatchEvent::Modified(object) => ("Modified", object),
            WatchEvent::Deleted(object) => ("Deleted", object),
            WatchEvent::Bookmark(_) => continue,
        };
        return Ok(format!("{name} {}={}", object.name_any(), value(&object)));
    }
}

async fn expired_paged_list_loses_no_object(cluster: &mut TestCluster) -> Result<(), TestError> {
    // More objects than one page has.
    const OBJECTS: usize = 520;
    let writer = cluster.writer().clone();
    let names: Vec<String> = (0..OBJECTS).map(|number| format!("c-{number:03}")).collect();
    for chunk in names.chunks(40) {
        try_join_all(chunk.iter().map(|name| writer.create(name, "1"))).await?;
    }
    cluster.network().send_to(1);
    let connection = cluster.connection().await?;
    let mut list: List<ConfigMap> = list(&connection, cluster.scope());
    let mut listed = BTreeMap::new();
    while let Some(object) = timeout(EVENT_TIMEOUT, list.next()).await? {
        let object = object?;
        let duplicate = listed.insert(object.name_any(), value(&object).to_owned());
        assert_eq!(duplicate, None, "{}", object.name_any());
        if listed.len() == 100 {
            // The program has read a part of the first page. The version of the list expires before the second page.
            writer.set("c-000", "2").await?;
            writer.set("c-519", "2").await?;
            cluster.compact().await?;
        }
    }
    assert!(listed.keys().eq(&names), "{} of {OBJECTS}", listed.len());
    assert_eq!((listed["c-000"].as_str(), listed["c-519"].as_str()), ("1", "2"), "the rest is of a later version");

    let version = list.version().ok_or("a complete list has a version")?;
    let mut changes = watch_from(&connection, cluster.scope(), &version);
    assert_eq!(
        [next_change(&mut changes).await?, next_change(&mut changes).await?],
        ["Modified c-000=2", "Modified c-519=2"]
    );
    Ok(())
}

async fn watch_survives_cut_and_reports_expiry(cluster: &mut TestCluster) -> Result<(), TestError> {
    let writer = cluster.writer().clone();
    let first = writer.create("a", "1").await?;
    let first = ResourceVersion::from(first.resource_version().unwrap_or_default().as_str());
    let connection = cluster.connection().await?;
    let mut changes: Changes<ConfigMap> = watch_from(&connection, cluster.scope(), &first);
    writer.set("a", "2").await?;
    assert_eq!(next_change(&mut changes).await?, "Modified a=2");
    cluster.network().cut();
    writer.set("a", "3").await?;
    assert!(timeout(Duration::from_secs(1), changes.next()).await.is_err(), "a disconnect must not end the stream");
    assert!(!changes.freshness().is_fresh(), "{}", changes.freshness());
    cluster.network().heal();
    assert_eq!(next_change(&mut changes).await?, "Modified a=3");
    assert!(changes.freshness().is_fresh(), "{}", changes.freshness());

    // After a restart, the server has no earlier events.
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    let mut expired: Changes<ConfigMap> = watch_from(&connection, cluster.scope(), &first);
    let error = timeout(EVENT_TIMEOUT, expired.next())
        .await?
        .ok_or("the stream has ended")?
        .expect_err("the version has expired");
    assert!(matches!(&error, StreamError::Expired { version, .. } if *version == first), "{error}");
    assert!(expired.next().await.is_none());
    Ok(())
}
