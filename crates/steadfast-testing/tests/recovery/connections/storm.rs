//! A server that sends ten GOAWAYs per second for a minute.

use std::time::Duration;

use steadfast_testing::TestError;

use crate::connections::fixture::{ConnectionFixture, Log, ensure};

const WATCHES: usize = 20;

/// Maximum number of connections without a watch: the newest one, and the one for requests. A draining connection
/// stays open until its last watch has moved, and each failed move increases the backoff (R6). At worst, each watch has
/// its own connection, and a second one during a move.
const MAX_CONNECTIONS_WITHOUT_WATCHES: usize = 2;

#[tokio::test(start_paused = true)]
async fn ten_goaways_per_second_lose_no_event() -> Result<(), TestError> {
    let log = Log::capture_info();
    let fixture = ConnectionFixture::new(None).await?;
    let recordings = fixture.start_informers(WATCHES).await?;
    let lists_before = fixture.lists();
    for round in 0..600 {
        fixture.server.faults().goaway();
        for index in 0..4 {
            fixture.update((round + index * 5) % WATCHES, &round.to_string())?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        ensure(recordings.iter().all(|recording| recording.informer().freshness().is_fresh()), || {
            format!("in doubt in round {round}")
        })?;
        let (open_connections, open_watches) = (fixture.open_connections(), fixture.server.open_watches(0));
        ensure(open_connections <= open_watches + MAX_CONNECTIONS_WITHOUT_WATCHES, || {
            format!("{open_connections} connections for {open_watches} watches in round {round}")
        })?;
        ensure((WATCHES..=2 * WATCHES).contains(&open_watches), || {
            format!("{open_watches} watches of {WATCHES} informers are open in round {round}")
        })?;
    }
    fixture.check_contract().await?;
    ensure(fixture.lists() == lists_before, || "it was listed again".to_owned())?;
    ensure(log.text().is_empty(), || log.text())
}
