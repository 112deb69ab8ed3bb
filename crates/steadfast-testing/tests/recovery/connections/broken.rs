//! Each scenario must fail with an injected fault in the library, which proves that its check can fail.

use std::time::Duration;

use steadfast::InjectedFault;
use steadfast::transport::ConnectionState;
use steadfast_testing::TestError;

use crate::connections::fixture::{ConnectionFixture, ensure, until};
use crate::connections::{many_watches, moving};

/// R1: a peer disappears while no request is in flight.
async fn silent_peer_is_noticed_within_15_seconds(fault: Option<InjectedFault>) -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(fault).await?;
    let recordings = fixture.start_informers(1).await?;
    fixture.server.faults().black_hole(true);
    let is_doubted = || !recordings[0].informer().freshness().is_fresh();
    until(Duration::from_secs(15), "it is doubted", is_doubted).await?;
    Ok(())
}

/// F2: a failed connection is not used again.
async fn failed_connection_is_not_reused(fault: Option<InjectedFault>) -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(fault).await?;
    let request_connection = || async {
        let request = http::Request::get("/api/v1/namespaces").body(kube::client::Body::empty())?;
        Ok::<_, TestError>(fixture.connection.send(request).await?.into_body().connection())
    };
    for round in 0..10 {
        let first = request_connection().await?;
        fixture.server.faults().reset();
        until(Duration::from_secs(1), "it is seen", || {
            !fixture.connection.connections().iter().any(|report| report.state == ConnectionState::Ready)
        })
        .await?;
        let second = request_connection().await?;
        ensure(second != first, || format!("connection {first} again in round {round}"))?;
    }
    Ok(())
}

/// Runs `scenario` without and with the fault. The first run must pass. The second run must fail, with an error that
/// contains `words`.
macro_rules! assert_detected {
    ($name:ident, $fault:ident, $scenario:path, $words:literal) => {
        #[tokio::test(start_paused = true)]
        async fn $name() -> Result<(), TestError> {
            $scenario(None).await?;
            let Err(error) = $scenario(Some(InjectedFault::$fault)).await else {
                return Err("the scenario does not notice".into());
            };
            assert!(error.to_string().contains($words), "{error}");
            Ok(())
        }
    };
}

assert_detected!(
    r1_a_silence_without_pings_is_caught,
    Unpinged,
    silent_peer_is_noticed_within_15_seconds,
    "in vain waited 15s until it is doubted"
);
assert_detected!(
    f2_a_dead_connection_that_is_handed_out_again_is_caught,
    ReusedDeadConnection,
    failed_connection_is_not_reused,
    "in vain waited 1s until it is seen"
);
assert_detected!(
    r4_a_watch_that_is_broken_before_the_next_is_made_is_caught,
    BreakBeforeMake,
    moving::a_drained_connection_is_left_without_a_gap,
    "of 50 watches are open"
);
assert_detected!(
    requests_that_wait_behind_watches_are_caught,
    QueuedBehindWatches,
    many_watches::requests_beside_a_thousand_watches,
    "had capacity"
);
