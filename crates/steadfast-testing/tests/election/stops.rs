//! Release of a lease that is held without a published term.

use std::time::Duration;

use steadfast_apiserver::{RequestRule, Verb};
use steadfast_testing::TestError;
use steadfast_testing::proxy::Direction;
use tokio::time::{Instant, sleep};

use crate::leaders::{candidate, leader, lease, process, server, write};

const SECOND: Duration = Duration::from_secs(1);

/// Regression test: after the loss of a term, a candidate that holds the lease again starts no term before the server
/// must have processed all requests of the last term. A stop in this time left the lease held, so that other candidates
/// waited for its expiry.
#[tokio::test(start_paused = true)]
async fn stop_before_next_term_releases_lease() -> Result<(), TestError> {
    let server = server().await?;
    let (process, connection) = process(&server, 1).await?;
    let election = candidate(&connection, "a")?;
    let lost_leader = leader(&election).await?;
    // Opens the connection of the term.
    write(lost_leader.client(), "first").await?;
    process.network.black_hole(Direction::ToClient, true);
    sleep(9 * SECOND).await;
    let client = lost_leader.client();
    process.run(async move { drop(write(client, "without response").await) });
    sleep(SECOND * 3 / 2).await;
    assert!(!lost_leader.is_leader());
    process.network.reset();
    process.network.black_hole(Direction::ToClient, false);
    sleep(SECOND * 5 / 2).await;
    assert!(!election.is_leader(), "the last write may still be processed");
    assert_eq!(election.holder().as_deref(), Some(election.identity()));
    assert!(election.stop().await, "the lease is released");
    assert_eq!(lease(&connection).await?.spec.and_then(|spec| spec.holder_identity), Some(String::new()));
    Ok(())
}

/// Regression test: a stop abandoned a request that could still acquire the lease, and did not release the lease.
#[tokio::test(start_paused = true)]
async fn stop_during_acquisition_releases_lease() -> Result<(), TestError> {
    let server = server().await?;
    let (_process, connection) = process(&server, 1).await?;
    server.faults().delay_matching(RequestRule::any().resource("leases").verb(Verb::Create), SECOND);
    let election = candidate(&connection, "a")?;
    sleep(SECOND / 2).await;
    let stop_time = Instant::now();
    assert!(election.stop().await, "the lease is released");
    assert!(stop_time.elapsed() <= SECOND, "{:?}", stop_time.elapsed());
    assert!(election.until_leader().await.is_none() && !election.is_leader());
    assert_eq!(lease(&connection).await?.spec.and_then(|spec| spec.holder_identity), Some(String::new()));
    Ok(())
}
