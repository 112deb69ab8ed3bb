//! Series of equal events on the server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;

#[tokio::test(start_paused = true)]
async fn repeated_event_is_counted() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    for _ in 0..3 {
        fixture.note("a", "it was changed");
        tokio::time::sleep(SECOND).await;
    }
    fixture.flush().await?;
    let published = fixture.published_events().await?;
    assert_eq!(published.iter().map(event_text).collect::<Vec<_>>(), ["a: it was changed ×3"]);
    let event = &published[0];
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert!(event.metadata.name.as_deref().is_some_and(|name| name.starts_with("a.")));
    assert_eq!(event.event_time, Some(MicroTime(START)));
    let last = event.series.as_ref().map(|series| series.last_observed_time.0);
    assert_eq!(last, Some(START + SignedDuration::from_secs(2)));
    assert_eq!(event.reporting_controller.as_deref(), Some("example.com/web"));
    assert_eq!(event.reporting_instance.as_deref(), Some("web-1"));
    let stats = fixture.events.stats();
    assert_eq!((stats.recorded, stats.delivered, stats.creates, stats.patches), (3, 3, 1, 2));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn series_is_flushed_and_then_restarted() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    for _ in 0..100 {
        fixture.note("a", "it was changed");
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×64"], "at least half of the count");
    assert_eq!(fixture.requests().len(), 7);
    tokio::time::sleep(6 * MINUTE).await;
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×100"]);
    assert_eq!(fixture.events.stats().series, 0);
    fixture.note("a", "it was changed");
    tokio::time::sleep(SECOND).await;
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×100", "a: it was changed ×1"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_recreated_with_count() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    let name = fixture.published_events().await?.remove(0).metadata.name.ok_or("the event has no name")?;
    fixture.server.delete_named(EVENTS, "default", &name)?;
    assert_eq!(fixture.event_texts().await?, Vec::<String>::new());
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    let published = fixture.published_events().await?;
    assert_eq!((published.len(), count(&published[0]), published[0].metadata.name.as_ref()), (1, 2, Some(&name)));
    assert_eq!(published[0].event_time, Some(MicroTime(START)));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn similar_events_are_combined_after_ten() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    for number in 1..=30 {
        fixture.note("a", &format!("change {number}"));
    }
    fixture.flush().await?;
    let texts = fixture.event_texts().await?;
    assert_eq!(texts.len(), 10, "{texts:#?}");
    assert!(texts.contains(&"a: change 9 ×1".to_owned()), "{texts:#?}");
    assert!(texts.contains(&"a: (combined from similar events): change 10 ×21".to_owned()), "{texts:#?}");
    assert_eq!(fixture.events.stats().combined, 21);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropped_recorder_sends_pending_events() -> Result<(), TestError> {
    let EventsFixture { server, network: _, connection, events } = EventsFixture::new().await?;
    for _ in 0..3 {
        events.publish(&subject("a"), EventDraft::normal("Changed", "Changing").note("it was changed"));
    }
    let other_recorder = events.clone();
    drop(events);
    other_recorder.publish(&subject("b"), EventDraft::normal("Changed", "Changing").note("it was changed"));
    drop(other_recorder);
    tokio::time::sleep(SECOND).await;
    let api: Api<Event> = Api::all(connection.client());
    let published = api.list(&ListParams::default()).await?;
    assert_eq!(published.iter().map(event_text).collect::<Vec<_>>(), ["a: it was changed ×3", "b: it was changed ×1"]);
    drop(server);
    Ok(())
}
