//! Snapshots of servers in memory: their encoding, and servers that continue from them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Snapshot, SnapshotError};
use crate::random::Random;
use crate::{ApiServer, StartError};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Number of reserved revisions; more than a run of these tests uses.
const RESERVED_REVISIONS: u64 = 1000;

async fn start(seed: u64, snapshot: Snapshot) -> Result<ApiServer, StartError> {
    ApiServer::builder().in_memory().seed(seed).snapshot(snapshot).start().await
}

fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"size": {"type": "integer", "default": 3}},
    }}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn gadget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {}})
}

/// Returns the live objects by resource, namespace and name.
fn live(snapshot: &Snapshot) -> BTreeMap<(String, String), Value> {
    let key =
        |stored: &super::StoredObject| (stored.resource.to_string(), crate::metadata::namespaced_name(&stored.object));
    snapshot.objects().iter().map(|stored| (key(stored), Value::clone(&stored.object))).collect()
}

fn line_ends(bytes: &[u8]) -> usize {
    String::from_utf8_lossy(bytes).matches('\n').count()
}

async fn sample() -> Result<Snapshot, Box<dyn std::error::Error>> {
    let server = start(1, Snapshot::default()).await?;
    server.create(&config_map("a", "line\nend ü \u{2028}"))?;
    server.create(&definition())?;
    server.create(&gadget("g"))?;
    Ok(server.snapshot())
}

#[tokio::test(start_paused = true)]
async fn decoded_snapshot_has_same_objects() -> Outcome {
    let snapshot = sample().await?;
    let decoded = Snapshot::decode(&snapshot.encode())?;
    assert_eq!((live(&decoded), decoded.revision()), (live(&snapshot), snapshot.revision()));
    assert_eq!(decoded.start_revision(), snapshot.revision());
    let reserved = Snapshot::decode(&snapshot.clone().with_reserved_revisions(7).encode())?;
    assert_eq!(reserved.start_revision(), snapshot.revision() + 7);
    assert_eq!(reserved.object_count(), 7, "four namespaces, and the objects of the test");
    assert!(!format!("{snapshot:?}").contains("line"), "{snapshot:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn truncated_snapshot_is_rejected_with_line() -> Outcome {
    let bytes = sample().await?.encode();
    for length in 1..bytes.len() {
        let error = Snapshot::decode(&bytes[..length]).expect_err("a part is missing");
        let SnapshotError::Truncated { line, offset, .. } = error else { panic!("{length}: {error}") };
        assert_eq!((line, offset), (line_ends(&bytes[..length]) + 1, length), "{error}");
    }
    let header_only = bytes.iter().position(|byte| *byte == b'\n').map(|end| &bytes[..=end]);
    let error = Snapshot::decode(header_only.unwrap_or_default()).expect_err("a part is missing").to_string();
    assert!(error.contains("line 2") && error.contains("its header"), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn damaged_byte_is_rejected() -> Outcome {
    let bytes = sample().await?.encode();
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 2;
        assert!(Snapshot::decode(&damaged).is_err(), "byte {index}");
    }
    let mut damaged = bytes.clone();
    let last = bytes.len() - 3;
    damaged[last] = b'#';
    let error = Snapshot::decode(&damaged).expect_err("the byte is damaged");
    assert!(matches!(error, SnapshotError::Corrupt { line, .. } if line == line_ends(&bytes)), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn foreign_and_newer_files_are_rejected() -> Outcome {
    let bytes = sample().await?.encode();
    let error = |bytes: &[u8]| Snapshot::decode(bytes).expect_err("not a snapshot");
    assert_eq!(error(b""), SnapshotError::Empty);
    for text in
        ["kind: Config\n", "{}", "\0\0\0\0", "steadfast-apiserver-snapshot\n", "steadfast-apiserver-snapshot 0\n"]
    {
        assert_eq!(error(text.as_bytes()), SnapshotError::Foreign, "{text:?}");
    }
    let text = String::from_utf8(bytes)?;
    let newer = text.replacen("snapshot 1", "snapshot 2", 1);
    assert_eq!(error(newer.as_bytes()), SnapshotError::Newer(2));
    let longer = format!("{text}0123456789abcdef pods {{}}\n");
    assert!(error(longer.as_bytes()).to_string().contains("more lines"), "{:?}", error(longer.as_bytes()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_served_after_restart() -> Outcome {
    let snapshot = sample().await?;
    let server = start(2, Snapshot::decode(&snapshot.encode())?).await?;
    assert_eq!(server.get("gadgets", "default", "g")?["spec"]["size"], 3);
    let created = server.create(&gadget("h"))?;
    assert_eq!(created["spec"]["size"], 3, "the schema has its defaults");
    assert_eq!(created["metadata"]["resourceVersion"], (snapshot.revision() + 1).to_string());
    server.delete_named("customresourcedefinitions", "", "gadgets.example.com")?;
    assert!(server.get("gadgets", "default", "g").is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_ends_after_restart() -> Outcome {
    let server = start(1, Snapshot::default()).await?;
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))?;
    server.delete_named("namespaces", "", "shop")?;
    let server = start(2, server.snapshot()).await?;
    assert_eq!(server.get("namespaces", "", "shop")?["status"]["phase"], "Terminating");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(server.get("namespaces", "", "shop").is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restore_keeps_objects_of_snapshot() -> Outcome {
    let server = start(2, sample().await?.with_reserved_revisions(RESERVED_REVISIONS)).await?;
    let first_revision = server.revision();
    server.create(&config_map("b", "1"))?;
    server.faults().restore(1);
    assert_eq!(server.revision(), first_revision);
    assert!(server.get("configmaps", "default", "b").is_err());
    assert_eq!(server.get("configmaps", "default", "a")?["kind"], "ConfigMap");
    Ok(())
}

/// Writes, deletes or restores objects at random. Errors, such as of a missing object, are part of the run. A restore
/// keeps the initial namespaces, which exist at `first_revision`.
fn write_at_random(server: &ApiServer, random: &mut Random, first_revision: u64) {
    let name = format!("n{}", random.next() % 5);
    let value = random.next().to_string();
    match random.next() % 12 {
        0..3 => drop(server.create(&config_map(&name, &value))),
        3..6 => drop(server.merge_patch("configmaps", "default", &name, json!({"data": {"value": value}}))),
        6 => drop(server.delete_named("configmaps", "default", &name)),
        7 => drop(server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))),
        8 => drop(server.delete_named("namespaces", "", &name)),
        9 => drop(server.create(&definition())),
        10 => drop(server.create(&gadget(&name))),
        _ => {
            let back = random.next() % 4;
            server.faults().restore(server.revision().saturating_sub(back).max(first_revision));
        }
    }
}

/// Runs one server from a saved file to its end. Returns the last saved file. Half of the servers are killed, and lose
/// the writes since the last save.
async fn run_once(seed: u64, saved: &[u8], highest_revision: &mut u64) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut random = Random::seeded(seed);
    let snapshot = Snapshot::decode(saved)?;
    let mut saved = snapshot.clone().with_reserved_revisions(RESERVED_REVISIONS).encode();
    let server = start(seed, snapshot.clone()).await?;
    if snapshot.object_count() > 0 {
        assert_eq!(live(&server.snapshot()), live(&snapshot), "seed {seed}");
    }
    assert!(server.revision() >= *highest_revision, "seed {seed}: {} after {highest_revision}", server.revision());
    let first_revision = server.revision();
    for _ in 0..random.next() % 40 {
        write_at_random(&server, &mut random, first_revision);
        if random.next().is_multiple_of(8) {
            saved = server.snapshot().with_reserved_revisions(RESERVED_REVISIONS).encode();
        }
    }
    let start_revision = snapshot.start_revision();
    let is_new = |revision: u64| revision > start_revision.max(*highest_revision);
    let changes = server.history().changes;
    let written = changes.iter().skip(snapshot.object_count()).map(|change| change.revision);
    let reused = written.clone().find(|revision| !is_new(*revision));
    assert_eq!(reused, None, "seed {seed}: a version of an earlier run");
    *highest_revision = written.max().unwrap_or(server.revision()).max(*highest_revision);
    if random.next().is_multiple_of(2) {
        saved = server.snapshot().encode();
    }
    Ok(saved)
}

#[tokio::test(start_paused = true)]
async fn random_restarts_reuse_no_version() -> Outcome {
    for seed in 0..60 {
        let (mut saved, mut highest_revision) = (Snapshot::default().encode(), 0);
        for run in 0..5 {
            saved = run_once(seed * 5 + run, &saved, &mut highest_revision).await?;
        }
    }
    Ok(())
}
