//! What a silent connection is asked by: something small that goes through all that is on the way (R2a).

use std::sync::Arc;

use http::Request;
use http::header::USER_AGENT;
use kube::client::Body;

use super::Inner;

/// Every API server has it, and it reads nothing. Who may not ask is told so, which is an answer too.
const PATH: &str = "/livez/ping";

/// Has silent connections of `connection` asked from now on.
pub(super) fn begin(connection: &Arc<Inner>) {
    let weak = Arc::downgrade(connection);
    connection.pool.inquire_by(Box::new(move |deadline| {
        let weak = weak.clone();
        Box::pin(async move {
            let inner = weak.upgrade()?;
            let mut request = inner.addressing.load().address(Request::get(PATH).body(Body::empty()).ok()?);
            request.headers_mut().entry(USER_AGENT).or_insert_with(|| inner.agent.clone());
            // With credentials, or something on the way might answer in the server's place.
            let mut headers = request.headers().clone();
            let late = inner.environment.sleep_until(deadline);
            tokio::select! {
                biased;
                given = inner.authorizer.authorize(&inner, &mut headers) => {
                    if given.is_ok() {
                        *request.headers_mut() = headers;
                    }
                }
                () = late => {}
            }
            Some(request)
        })
    }));
}
