//! Probe requests for silent connections: a small request that passes every proxy on the way (R2a).

use std::sync::Arc;

use http::Request;
use kube::client::Body;

use super::request_decorator::RequestDecorator;
use crate::environment::SharedEnvironment;
use crate::transport::Pool;

/// Path of the probe. Every API server serves it without reading etcd. A 401 or 403 is also a sign of life.
const PROBE_PATH: &str = "/livez/ping";

/// Starts probes of silent connections of `pool` until `decorator` is dropped. The `decorator` adds the server's
/// address, headers and credentials to the probes.
pub(super) fn start_probes(pool: &Pool, decorator: &Arc<RequestDecorator>, environment: &SharedEnvironment) {
    // A weak reference: the decorator belongs to the connection, and the pool must not keep the decorator alive.
    let weak = Arc::downgrade(decorator);
    let environment = environment.clone();
    pool.enable_liveness_probes(Box::new(move |deadline| {
        let weak = weak.clone();
        let timeout = environment.sleep_until(deadline);
        Box::pin(async move {
            let decorator = weak.upgrade()?;
            let mut request = decorator.address(Request::get(PROBE_PATH).body(Body::empty()).ok()?);
            // With credentials: an authenticating proxy might otherwise respond instead of the server. Late credentials
            // must not delay the probe beyond its deadline.
            let mut headers = request.headers().clone();
            tokio::select! {
                biased;
                authorized = decorator.authorize(&mut headers) => {
                    if authorized.is_ok() {
                        *request.headers_mut() = headers;
                    }
                }
                () = timeout => {}
            }
            Some(request)
        })
    }));
}
