//! Delivers a number of `MODIFIED` events to one handler, one after the other: `event_path EVENTS`.
//!
//! The script `bench/event-path` runs this program under callgrind with two numbers of events. The difference between
//! the two profiles is the cost of the additional events, from the socket to the handler.

use std::sync::mpsc::channel;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Connection, Event, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map, kube_config};

/// Limit of each wait. Callgrind makes the program about a hundred times slower.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), TestError> {
    let events: u64 = std::env::args().nth(1).map_or(Ok(10), |events| events.parse())?;
    let server = ApiServer::builder().start().await?;
    server.create(&config_map("a", "start"))?;
    let connection = Connection::new(kube_config(&server).await?)?;
    let informers = InformerFactory::new(&connection);
    let (sender, handled) = channel();
    let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
    config_maps.on_event(move |event| {
        if let Event::Updated { new, .. } = event {
            // The receiver is dropped if the program fails. The event is then not needed.
            let _ = sender.send(new.metadata.resource_version.clone());
        }
    })?;
    informers.wait_for_sync(WAIT_TIMEOUT).await?;
    for number in 0..events {
        server.replace(&config_map("a", &number.to_string()))?;
        // Each event is handled before the next one is written, so that none are merged.
        handled.recv_timeout(WAIT_TIMEOUT)?;
    }
    println!("{events} events handled");
    Ok(())
}
