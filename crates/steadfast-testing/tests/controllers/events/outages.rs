//! Servers that are unreachable, busy or silent.

use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_testing::proxy::Direction;

use super::*;

#[tokio::test(start_paused = true)]
async fn events_during_outage_are_delivered_once() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.note("before", "it was changed");
    fixture.flush().await?;
    fixture.server.faults().stop();
    for number in 0..50 {
        fixture.note(&format!("during-{number:02}"), "it was changed");
        fixture.note("before", "it was changed");
        tokio::time::sleep(SECOND).await;
    }
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(fixture.events.stats().waiting, 100, "no event is dropped");
    fixture.server.faults().start();
    fixture.flush().await?;
    let texts = fixture.event_texts().await?;
    assert_eq!(texts.len(), 51);
    assert_eq!(texts[0], "before: it was changed ×51");
    assert!(texts[1..].iter().all(|texts| texts.ends_with("×1")), "{texts:#?}");
    let stats = fixture.events.stats();
    assert_eq!((stats.delivered, stats.failed, stats.dropped), (101, 0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_retried_with_backoff() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let rule = RequestRule::any().resource(EVENTS);
    fixture.server.faults().respond(rule, InjectedResponse::code(503));
    for number in 0..200 {
        fixture.note(&format!("a-{number}"), "it was changed");
    }
    tokio::time::sleep(10 * MINUTE).await;
    let requests = fixture.requests();
    // Eight requests are sent at first. Retries follow after 1 s, 2 s, 4 s … 60 s, each delay shortened by up to half.
    assert!((8 + 12..=8 + 26).contains(&requests.len()), "{} requests", requests.len());
    assert_eq!(fixture.events.stats().failed, 0);
    fixture.server.faults().clear_rules();
    fixture.flush().await?;
    assert_eq!(fixture.events.stats().delivered, 200);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn retry_after_delays_all_requests() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let rule = RequestRule::any().resource(EVENTS).times(1);
    fixture.server.faults().respond(rule, InjectedResponse::retry_after(429, 20 * SECOND));
    fixture.note("a", "it was changed");
    tokio::time::sleep(SECOND).await;
    for name in ["b", "c", "d"] {
        fixture.note(name, "it was changed");
    }
    fixture.flush().await?;
    let requests = fixture.requests();
    assert_eq!((requests.len(), requests[0].code), (5, Some(429)));
    assert!(requests[1..].iter().all(|request| request.at >= requests[0].at + 20 * SECOND), "{requests:#?}");
    assert_eq!(fixture.event_texts().await?.len(), 4);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_duplicate() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    // The connection already exists, so the client can send the request.
    assert_eq!(fixture.event_texts().await?, Vec::<String>::new());
    fixture.network.black_hole(Direction::ToClient, true);
    fixture.note("a", "it was changed");
    tokio::time::sleep(SECOND).await;
    fixture.note("a", "it was changed");
    tokio::time::sleep(MINUTE).await;
    fixture.network.heal();
    fixture.flush().await?;
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×2"]);
    let codes: Vec<_> = fixture.requests().iter().filter_map(|request| request.code).collect();
    assert_eq!(codes, [201, 409, 200], "the event existed, without its count");
    assert_eq!(fixture.events.stats().delivered, 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_event_delays_no_other() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let rule = RequestRule::any().resource(EVENTS).namespace("broken");
    fixture.server.faults().respond(rule, InjectedResponse::code(500));
    let mut broken_subject = subject("a");
    broken_subject.metadata.namespace = Some("broken".to_owned());
    fixture.events.publish(&broken_subject, EventDraft::warning("Changed", "Changing"));
    for number in 0..20 {
        fixture.note(&format!("b-{number}"), "it was changed");
        tokio::time::sleep(5 * SECOND).await;
    }
    tokio::time::sleep(10 * MINUTE).await;
    let stats = fixture.events.stats();
    assert_eq!((stats.delivered, stats.failed, stats.waiting), (20, 1, 0));
    let attempts = fixture.requests().iter().filter(|request| request.path.contains("/namespaces/broken/")).count();
    assert_eq!(attempts, 12);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stop_reports_undelivered_events_at_deadline() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    fixture.server.faults().freeze(true);
    for _ in 0..2 {
        fixture.note("a", "it was changed");
        fixture.note("b", "it was changed");
    }
    let start = Instant::now();
    let error = fixture.events.stop(5 * SECOND).await.expect_err("the server does not respond");
    assert_eq!((error.undelivered, start.elapsed()), (4, 5 * SECOND));
    assert!(error.to_string().contains("4 recorded events were not sent within 5s"), "{error}");
    fixture.note("a", "it was changed");
    let stats = fixture.events.stats();
    assert_eq!((stats.recorded, stats.delivered, stats.dropped, stats.waiting), (6, 1, 5, 0));
    let second_error = fixture.events.stop(SECOND).await.expect_err("the events are still undelivered");
    assert_eq!(second_error.undelivered, 4);
    assert!(fixture.events.flush(SECOND).await.is_ok(), "no event is pending any more");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_inflight_requests_only() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.server.faults().delay(SECOND);
    for number in 0..20 {
        fixture.note(&format!("a-{number}"), "it was changed");
    }
    let start = Instant::now();
    fixture.events.stop(MINUTE).await?;
    assert!(start.elapsed() < MINUTE, "{:?}", start.elapsed());
    fixture.server.faults().delay(Duration::ZERO);
    assert_eq!(fixture.event_texts().await?.len(), 20);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn late_flush_returns_error_and_continues() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.server.faults().freeze(true);
    fixture.note("a", "it was changed");
    let error = fixture.events.flush(5 * SECOND).await.expect_err("the server does not respond");
    assert_eq!(error.undelivered, 1);
    fixture.server.faults().freeze(false);
    fixture.flush().await?;
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×1"]);
    Ok(())
}
