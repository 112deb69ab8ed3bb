//! What a silent connection is asked by: something small that goes through all that is on the way (R2a).

use std::sync::Arc;

use http::Request;
use kube::client::Body;

use super::request_decorator::RequestDecorator;
use crate::environment::SharedEnvironment;
use crate::transport::Pool;

/// Every API server has it, and it reads nothing. Who may not ask is refused, which is an answer too.
const PATH: &str = "/livez/ping";

/// Has silent connections of `pool` asked from now on, in requests with this `decorator`, as long as that is there.
pub(super) fn begin(pool: &Pool, decorator: &Arc<RequestDecorator>, environment: &SharedEnvironment) {
    let weak = Arc::downgrade(decorator);
    let environment = environment.clone();
    pool.inquire_by(Box::new(move |deadline| {
        let weak = weak.clone();
        let late = environment.sleep_until(deadline);
        Box::pin(async move {
            let decorator = weak.upgrade()?;
            let mut request = decorator.address(Request::get(PATH).body(Body::empty()).ok()?);
            // With credentials, or something on the way might answer in the server's place.
            let mut headers = request.headers().clone();
            tokio::select! {
                biased;
                given = decorator.authorize(&mut headers) => {
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
