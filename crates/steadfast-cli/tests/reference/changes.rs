//! Config maps that change until the end of a test.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use steadfast_testing::{TestError, config_map};
use tokio::time::interval;

/// Interval between two changes of a config map. `doctor` reports objects that change once a second.
const INTERVAL: Duration = Duration::from_millis(1500);

/// Creates config maps with these names, and changes them until the test ends.
pub(crate) async fn keep_changing(client: Client, names: &'static [&'static str]) -> Result<(), TestError> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for name in names {
        maps.create(&PostParams::default(), &config_map(name, "0")).await?;
    }
    tokio::spawn(async move {
        let mut ticks = interval(INTERVAL);
        for value in 1.. {
            ticks.tick().await;
            for name in names {
                let patch = Patch::Merge(json!({ "data": { "value": value.to_string() } }));
                // The server shuts down at the end of the test.
                let _ = maps.patch(name, &PatchParams::default(), &patch).await;
            }
        }
    });
    Ok(())
}
