//! Tests of the metrics of a queue.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use steadfast_controller::WorkqueueMetrics;
use tokio::time::advance;

use super::{queue, take_ready};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn scrape_matches_client_go_metrics() {
    let (queue, dropped) = (queue(), queue());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(WorkqueueMetrics::default().with("pods", &queue).with("dropped", &dropped)));
    drop(dropped);

    queue.add(1);
    queue.add(1);
    queue.add(2);
    queue.add(3);
    advance(2 * SECOND).await;
    let first = take_ready(&queue).expect("a ready key");
    queue.add(1);
    advance(SECOND).await;
    drop(take_ready(&queue));
    let third = take_ready(&queue).expect("a ready key");
    advance(5 * SECOND).await;
    queue.add_after(4, SECOND);

    let mut text = String::new();
    encode(&mut text, &registry).expect("the registry is encodable");
    for line in [
        "workqueue_depth{name=\"pods\"} 1.0",
        "workqueue_adds_total{name=\"pods\"} 4",
        "workqueue_retries_total{name=\"pods\"} 1",
        "workqueue_queue_duration_seconds_sum{name=\"pods\"} 8.0",
        "workqueue_queue_duration_seconds_count{name=\"pods\"} 3",
        "workqueue_queue_duration_seconds_bucket{le=\"1.0\",name=\"pods\"} 0",
        "workqueue_queue_duration_seconds_bucket{le=\"10.0\",name=\"pods\"} 3",
        "workqueue_work_duration_seconds_count{name=\"pods\"} 1",
        "workqueue_work_duration_seconds_bucket{le=\"1e-8\",name=\"pods\"} 1",
        "workqueue_unfinished_work_seconds{name=\"pods\"} 11.0",
        "workqueue_longest_running_processor_seconds{name=\"pods\"} 6.0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("dropped"), "{text}");
    drop((first, third));
}
