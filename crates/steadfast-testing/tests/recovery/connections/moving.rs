//! Watches leave a draining or suspect connection before it ends. Each new watch opens before the old one is closed.

use std::time::Duration;

use steadfast::transport::ConnectionState;
use steadfast::{Freshness, InjectedFault};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map_in};
use tokio::time::Instant;

use crate::connections::fixture::{ConnectionFixture, Log, ensure, until};

const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// R4, F8: after a GOAWAY, every watch is open on another connection before the old stream is dropped.
pub(crate) async fn a_drained_connection_is_left_without_a_gap(fault: Option<InjectedFault>) -> Result<(), TestError> {
    let log = Log::capture_info();
    let fixture = ConnectionFixture::new(fault).await?;
    let recordings = fixture.start_informers(50).await?;
    let (lists_before, watches_before) = (fixture.lists(), fixture.watches());
    // The delay makes a gap visible.
    fixture.server.faults().delay(Duration::from_millis(20));
    fixture.server.faults().goaway();
    let start = Instant::now();
    let ids_before: Vec<u64> = fixture.connection.connections().iter().map(|report| report.id).collect();
    let are_all_new = || fixture.connection.connections().iter().all(|report| !ids_before.contains(&report.id));
    while !are_all_new() {
        ensure(start.elapsed() < EVENT_TIMEOUT, || "the old connection is still there".to_owned())?;
        let open_watches = fixture.server.open_watches(0);
        ensure(open_watches >= 50, || format!("only {open_watches} of 50 watches are open"))?;
        ensure(recordings.iter().all(|recording| recording.informer().freshness().is_fresh()), || {
            "in doubt".to_owned()
        })?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let opened_watches = fixture.watches() - watches_before;
    ensure(opened_watches == 50, || format!("{opened_watches} watches for 50 moves"))?;
    for index in 0..50 {
        fixture.update(index, "1")?;
    }
    fixture.check_contract().await?;
    ensure(fixture.lists() == lists_before, || "it was listed again".to_owned())?;
    ensure(log.text().is_empty(), || log.text())
}

#[tokio::test(start_paused = true)]
async fn goaway_moves_watches_without_gap() -> Result<(), TestError> {
    a_drained_connection_is_left_without_a_gap(None).await
}

/// The new watch repeats events that the old one has delivered. A change of an object that was deleted and recreated
/// since, all before one publication, once caused a list.
#[tokio::test(start_paused = true)]
async fn recreated_objects_need_no_list_after_goaway() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let _recordings = fixture.start_informers(1).await?;
    let (lists_before, watches_before) = (fixture.lists(), fixture.watches());
    fixture.server.faults().delay(Duration::from_millis(20));
    fixture.server.faults().goaway();
    let start = Instant::now();
    let mut steps_after_move = 0;
    // One of these batches is read from both watches before it is published.
    while steps_after_move < 50 {
        ensure(start.elapsed() < EVENT_TIMEOUT, || "the watch has not moved".to_owned())?;
        fixture.update(0, &format!("{steps_after_move}"))?;
        fixture.server.delete_named("configmaps", "team-0", "a")?;
        fixture.server.create(&config_map_in("team-0", "a", "0"))?;
        steps_after_move += usize::from(fixture.watches() > watches_before);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.check_contract().await?;
    assert_eq!(fixture.lists(), lists_before);
    Ok(())
}

/// The second GOAWAY arrives while the old and the new watch are both read, or shortly after the move.
#[tokio::test(start_paused = true)]
async fn second_goaway_moves_watch_again() -> Result<(), TestError> {
    for delay_after_move in [0, 50, 300].map(Duration::from_millis) {
        let fixture = ConnectionFixture::new(None).await?;
        let _recordings = fixture.start_informers(1).await?;
        let lists_before = fixture.lists();
        fixture.server.faults().delay(Duration::from_millis(20));
        let mut step = 0;
        for _ in 0..2 {
            let watches_before = fixture.watches();
            fixture.server.faults().goaway();
            let start = Instant::now();
            let mut moved_at = None;
            // The writes continue during the whole move.
            while moved_at.is_none_or(|moved_at: Instant| moved_at.elapsed() < delay_after_move) {
                ensure(start.elapsed() < EVENT_TIMEOUT, || format!("no move, {delay_after_move:?} after the last"))?;
                step += 1;
                fixture.update(0, &step.to_string())?;
                if fixture.watches() > watches_before {
                    moved_at.get_or_insert_with(Instant::now);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        fixture.check_contract().await?;
        assert_eq!(fixture.lists(), lists_before);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn rotation_replaces_connections_without_doubt() -> Result<(), TestError> {
    for fixture in [ConnectionFixture::new(None).await?, ConnectionFixture::over_http1().await?] {
        let log = Log::capture_info();
        let recordings = fixture.start_informers(20).await?;
        let lists_before = fixture.lists();
        let ids_before: Vec<u64> = fixture.connection.connections().iter().map(|report| report.id).collect();
        fixture.connection.drain();
        let are_all_new = || fixture.connection.connections().iter().all(|report| !ids_before.contains(&report.id));
        until(EVENT_TIMEOUT, "the old connections are closed", are_all_new).await?;
        assert!(fixture.connection.connections().iter().map(|report| report.streams).sum::<usize>() >= 20);
        assert!(recordings.iter().all(|recording| recording.informer().freshness().is_fresh()));
        assert!(fixture.server.open_watches(0) >= 20);
        // The check precedes `check_contract`, which requests a proof for each cache. Before the first bookmark, a
        // proof needs a list of versions (R2).
        assert_eq!(fixture.lists(), lists_before);
        fixture.update(3, "1")?;
        fixture.check_contract().await?;
        assert_eq!(log.text(), "");
        for closed in fixture.connection.recently_closed() {
            assert!(["drained", "the only response was dropped"].contains(&closed.reason.as_str()), "{closed}");
        }
    }
    Ok(())
}

/// One of two network paths becomes a black hole. R1 alone would allow 15 s until detection.
#[tokio::test(start_paused = true)]
async fn suspect_connection_is_replaced_promptly() -> Result<(), TestError> {
    let log = Log::capture_info();
    let fixture = ConnectionFixture::with_builder(ApiServer::builder().replicas(2), None).await?;
    let recordings = fixture.start_informers(30).await?;
    let lists_before = fixture.lists();
    tokio::time::sleep(Duration::from_secs(20)).await;
    fixture.memory.network.send_to(1);
    fixture.server.faults().replica(0).black_hole(true);
    let start = Instant::now();
    while fixture.server.open_watches(1) < 30 {
        assert!(
            start.elapsed() < Duration::from_secs(9),
            "still on the dead one: {:?}",
            fixture.connection.connections()
        );
        assert!(
            recordings.iter().all(|recording| recording.informer().freshness().is_fresh()),
            "no informer may be in doubt"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for index in 0..30 {
        fixture.update(index, "1")?;
    }
    fixture.check_contract().await?;
    assert_eq!(fixture.lists(), lists_before, "all resumed");
    // R1 bounds the time until the dead connection is closed.
    tokio::time::sleep_until(start + Duration::from_secs(15)).await;
    let closed = fixture.connection.recently_closed();
    assert!(closed.iter().any(|closed| closed.reason.contains("no response to a ping")), "{closed:?}");
    assert_eq!(log.text(), "", "a timely move must not be logged");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn late_pong_moves_no_watch() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let recordings = fixture.start_informers(30).await?;
    let (watches_before, dials_before) = (fixture.watches(), steadfast::unstable::dial_count(&fixture.connection));
    tokio::time::sleep(Duration::from_secs(20)).await;
    fixture.server.faults().black_hole(true);
    let is_suspect = || fixture.connection.connections().iter().any(|report| report.state == ConnectionState::Suspect);
    until(Duration::from_secs(10), "it is suspect", is_suspect).await?;
    let is_replacing =
        || fixture.connection.connections().iter().any(|report| report.state == ConnectionState::Connecting);
    assert!(is_replacing(), "the replacement is dialled without a waiting request");
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.server.faults().black_hole(false);
    until(EVENT_TIMEOUT, "all are well", || !is_suspect() && !is_replacing()).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(recordings.iter().all(|recording| recording.informer().freshness().is_fresh()));
    assert_eq!(steadfast::unstable::dial_count(&fixture.connection), dials_before + 1);
    assert!(fixture.watches() - watches_before <= 30, "at most once each: {}", fixture.watches() - watches_before);
    for index in 0..30 {
        fixture.update(index, "1")?;
    }
    fixture.check_contract().await
}

/// Silence alone causes probes only. No watch is reopened, and no connection is dialled.
#[tokio::test(start_paused = true)]
async fn probes_reuse_connection_during_silent_hour() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let recordings = fixture.start_informers(3).await?;
    fixture.server.faults().no_bookmarks(true);
    let (start, dials_before) = (Instant::now(), steadfast::unstable::dial_count(&fixture.connection));
    while start.elapsed() < Duration::from_secs(3600) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for recording in &recordings {
            let freshness = recording.informer().freshness();
            assert!(matches!(freshness, Freshness::Fresh { .. } | Freshness::Suspect(_)), "{freshness}");
        }
    }
    // One probe per minute serves all three informers.
    assert!((50..=70).contains(&fixture.server.request_counts().probes), "{:?}", fixture.server.request_counts());
    assert_eq!(
        steadfast::unstable::dial_count(&fixture.connection),
        dials_before,
        "{:?}",
        fixture.connection.recently_closed()
    );
    Ok(())
}
