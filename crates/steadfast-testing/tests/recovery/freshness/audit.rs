//! The audit (R12): events that a server's watch has lost are detected, named and repaired. Other objects are not
//! reported.

use serde_json::json;
use steadfast_contract::Bounds;
use steadfast_testing::{CachedConfigMap, EventRecording, Recorder, history};

use super::*;

const AUDIT_PERIOD: Duration = Duration::from_secs(600);

/// Runs a server that loses an update, a deletion and a creation for its watches. Returns the recording, and the number
/// of diagnostics, one audit period later.
async fn run_lossy_server(
    fault: Option<InjectedFault>,
) -> Result<(FreshnessFixture, Recorder, EventRecording<ConfigMapInForm>, usize), TestError> {
    let fixture = FreshnessFixture::new().await?;
    for name in ["changed", "deleted", "same"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    fixture.write_periodically(5 * REACTION_TIME);
    let recorder = Recorder::of(&fixture.server);
    let informer = start_fresh(fixture.build().audit_every(AUDIT_PERIOD), fault).await?;
    let notes = record_diagnostics(&informer);
    let recording = recorder.record(&informer);
    recording.until_synced().await;
    tokio::time::sleep(PERIOD).await;
    recorder.fault("lost events", true);
    fixture.server.faults().drop_events(3, |change| change.resource.resource() == "configmaps");
    fixture.server.merge_patch("configmaps", "default", "changed", json!({ "data": { "value": "2" } }))?;
    fixture.server.delete_named("configmaps", "default", "deleted")?;
    fixture.server.create(&config_map("created", "1"))?;
    tokio::time::sleep(AUDIT_PERIOD).await;
    let lost_count = note_count(&notes, |note| match note {
        Diagnostic::Lost { key, held, listed, .. } => match key.name() {
            "changed" => held.is_some() && listed.is_some(),
            "deleted" => held.is_some() && listed.is_none(),
            "created" => held.is_none() && listed.is_some(),
            other => panic!("{other} was not lost"),
        },
        _ => false,
    });
    Ok((fixture, recorder, recording, lost_count))
}

#[tokio::test(start_paused = true)]
async fn audit_repairs_lost_events_within_period() -> Result<(), TestError> {
    let (fixture, recorder, recording, lost_count) = run_lossy_server(None).await?;
    assert_eq!(lost_count, 3);
    assert_eq!(recording.descriptions("default/changed"), ["Added", "Updated"]);
    assert_eq!(recording.descriptions("default/deleted"), ["Added", "Deleted Inferred Deleted"]);
    assert_eq!(recording.descriptions("default/created"), ["Added"]);
    assert_eq!(recording.descriptions("default/same"), ["Added"]);
    assert!(recording.informer().freshness().is_fresh(), "{}", recording.informer().freshness());
    let counts = fixture.server.request_counts();
    assert_eq!((counts.streamed_lists, counts.lists), (1, 2), "the first list, the audit, the repair");
    recorder.settle(&fixture.server).await;
    let bounds = Bounds { audit: Some(AUDIT_PERIOD), ..Bounds::default() };
    let report = bounds.report(&history(&fixture.server, "", "configmaps")?, &recorder.trace());
    assert!(report.passed(), "{report:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn blind_audit_is_detected() -> Result<(), TestError> {
    let (fixture, recorder, recording, lost_count) = run_lossy_server(Some(InjectedFault::BlindAudit)).await?;
    assert_eq!(lost_count, 0);
    assert_eq!(recording.descriptions("default/deleted"), ["Added"]);
    recorder.settle_at(&fixture.server.revision().to_string(), PERIOD).await;
    let bounds = Bounds { audit: Some(AUDIT_PERIOD), ..Bounds::default() };
    let report = bounds.report(&history(&fixture.server, "", "configmaps")?, &recorder.trace());
    assert!(!report.passed(), "the checker must report the unrepaired loss");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn disabled_audit_sends_no_request() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().drop_next_event("configmaps");
    fixture.server.delete_named("configmaps", "default", "a")?;
    tokio::time::sleep(HOUR).await;
    assert!(is_cached(&informer, "a"));
    assert_eq!(fixture.server.request_counts().full_transfers(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn changes_during_audit_cause_no_alarm() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    for number in 0..40 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
    }
    // The pages of the audit take time, and many objects change between them.
    let informer = start_fresh(fixture.build().audit_every(PERIOD).page_size(Some(3)), None).await?;
    let notes = record_diagnostics(&informer);
    fixture.server.faults().delay(Duration::from_millis(300));
    let start = fixture.server.elapsed();
    for round in 0..3000_u32 {
        let name = format!("c-{}", round * 7 % 40);
        if round % 5 == 0 {
            fixture.server.delete_named("configmaps", "default", &name)?;
            if round % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(90)).await;
            }
            fixture.server.create(&config_map(&name, "again"))?;
        } else {
            let patch = json!({ "data": { "value": round.to_string() } });
            fixture.server.merge_patch("configmaps", "default", &name, patch)?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    }
    let audit_count = note_count(&notes, |note| matches!(note, Diagnostic::Audited { .. }));
    assert!(audit_count >= 4, "{audit_count}");
    assert_eq!(note_count(&notes, |note| matches!(note, Diagnostic::Lost { .. } | Diagnostic::Relisting { .. })), 0);
    assert!(fixture.requests_since(start).lists <= 7, "{:?}", fixture.requests_since(start));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn audit_detects_restore_with_newer_versions() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    for name in ["back", "kept"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let backup = fixture.server.revision();
    fixture.server.merge_patch("configmaps", "default", "back", json!({ "data": { "value": "2" } }))?;
    fixture.server.create(&config_map("gone", "1"))?;
    let informer = start_fresh(fixture.build().audit_every(AUDIT_PERIOD), None).await?;
    let notes = record_diagnostics(&informer);
    fixture.server.faults().cut();
    fixture.server.faults().restore(backup);
    fixture.server.faults().cut();
    for number in 0..5 {
        fixture.server.create(&config_map(&format!("new-{number}"), "1"))?;
    }
    fixture.server.faults().heal();
    tokio::time::sleep(AUDIT_PERIOD).await;
    assert!(!is_cached(&informer, "gone") && is_cached(&informer, "new-0") && is_cached(&informer, "kept"));
    let back = informer.lister()?.get("default", "back")?.expect("the backup contains the object");
    assert_eq!(back.value("value").as_deref(), Some("1"));
    assert_eq!(note_count(&notes, |note| matches!(note, Diagnostic::NewEpoch { .. })), 1);
    assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    Ok(())
}
