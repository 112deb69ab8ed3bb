//! Healthy servers cause no finding in 24 hours.

use std::time::Duration;

use steadfast_testing::TestError;
use tokio::time::{Instant, sleep};

use crate::fixture::Fixture;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of requests a second, on average.
const MAX_REQUEST_RATE: f64 = 1.0;

fn check(fixture: &Fixture, lasted: Duration) {
    assert_eq!(fixture.finding_texts(), Vec::<String>::new());
    let stats = fixture.audit.stats();
    let requests: u64 = stats.endpoints.iter().map(|endpoint| endpoint.requests).sum();
    let rate = requests as f64 / lasted.as_secs_f64();
    assert!(rate <= MAX_REQUEST_RATE, "{rate} requests a second");
    assert!(stats.endpoints.iter().flat_map(|endpoint| &endpoint.streams).all(|stream| stream.lost_events == 0));
}

#[tokio::test(start_paused = true)]
async fn quiet_server_causes_no_finding() -> Result<(), TestError> {
    for (replicas, bookmarks) in [(3, true), (1, false)] {
        let fixture = Fixture::start(replicas, 4).await?;
        // Without bookmarks, a quiet stream is silent for hours.
        fixture.server.faults().no_bookmarks(!bookmarks);
        sleep(DAY).await;
        check(&fixture, DAY);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn churning_server_causes_no_finding() -> Result<(), TestError> {
    let fixture = Fixture::start(3, 4).await?;
    let start = Instant::now();
    let mut number = 0_u64;
    while start.elapsed() < DAY {
        let (resource, name) = ((number % 4) as usize, format!("object-{}", number / 4));
        fixture.create(resource, &name);
        fixture.change(resource, &name, "2");
        // Objects live for some minutes, and some are created again at once.
        if number >= 40 {
            let old = number - 40;
            let (resource, name) = ((old % 4) as usize, format!("object-{}", old / 4));
            fixture.delete(resource, &name);
            if old.is_multiple_of(7) {
                fixture.create(resource, &name);
                fixture.delete(resource, &name);
            }
        }
        number += 1;
        sleep(Duration::from_millis(3000 + number % 13 * 700)).await;
    }
    check(&fixture, start.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_and_closing_server_causes_no_finding() -> Result<(), TestError> {
    let fixture = Fixture::start(2, 2).await?;
    let faults = fixture.server.faults();
    for number in 0..200_u64 {
        fixture.create(0, &format!("object-{number}"));
        let faults = faults.replica((number % 2) as usize);
        match number % 5 {
            0 => faults.end_watches(),
            1 => faults.goaway(),
            2 => faults.reset(),
            3 => faults.delay(Duration::from_millis(1500)),
            _ => {
                faults.delay(Duration::ZERO);
                faults.expire_events();
            }
        }
        sleep(Duration::from_secs(47)).await;
        fixture.server.faults().delay(Duration::ZERO);
    }
    assert_eq!(fixture.finding_texts(), Vec::<String>::new());
    Ok(())
}
