//! Retries of updates after a conflict.

use std::time::Duration;

use steadfast::Connection;
use steadfast::kube;

/// Maximum number of attempts.
const MAX_ATTEMPTS: u32 = 5;

/// Delay before the second attempt. Each further delay doubles.
const FIRST_DELAY: Duration = Duration::from_millis(10);

/// Runs `update`, and repeats `update` if another client changed the object in the meantime (409 `Conflict`).
///
/// Makes at most 5 attempts. The delays are 10 ms, 20 ms, 40 ms and 80 ms plus up to 100 % jitter, by the clock of
/// `connection`. An existing object (409 `AlreadyExists`) does not count as a conflict.
///
/// `update` must read the object from the server each time, because a cache may still contain the outdated version.
/// Controllers rarely need this function: a reconcile that returns the error runs again after its caches received the
/// newer version.
///
/// # Errors
///
/// Returns the last error of `update`.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::api::{Api, PostParams};
/// # use steadfast::Connection;
/// # async fn example(connection: Connection) -> kube::Result<()> {
/// let maps: Api<ConfigMap> = Api::namespaced(connection.client(), "default");
/// let changed = steadfast_controller::retry_on_conflict(&connection, || async {
///     let mut map = maps.get("settings").await?;
///     map.data.get_or_insert_default().insert("color".into(), "blue".into());
///     maps.replace("settings", &PostParams::default(), &map).await
/// });
/// let map = changed.await?;
/// # drop(map);
/// # Ok(())
/// # }
/// ```
pub async fn retry_on_conflict<T, Fut>(connection: &Connection, mut update: impl FnMut() -> Fut) -> kube::Result<T>
where
    Fut: Future<Output = kube::Result<T>>,
{
    let environment = connection.environment();
    let mut delay = FIRST_DELAY;
    for _ in 1..MAX_ATTEMPTS {
        match update().await {
            Err(error) if is_conflict(&error) => {}
            ended => return ended,
        }
        // Jitter separates clients that conflicted with each other; otherwise they would conflict again.
        let jitter = delay.mul_f64(environment.random() as f64 / u64::MAX as f64);
        environment.sleep_until(environment.now() + delay + jitter).await;
        delay *= 2;
    }
    update().await
}

/// Returns true if another client changed the object in the meantime.
fn is_conflict(error: &kube::Error) -> bool {
    // A create request also returns 409 for an existing name. A repetition cannot succeed, so this does not count as a
    // conflict.
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
}
