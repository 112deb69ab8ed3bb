//! Access of requests: their credentials and their origin.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header;

use super::context::RequestContext;
use super::credentials::{authorization, token_in_protocol};
use crate::cluster::Cluster;
use crate::status::Status;

/// Rejects a request without valid credentials.
pub(super) fn authenticate(cluster: &Cluster, request: &RequestContext) -> Result<(), Status> {
    let tokens = cluster.tokens();
    // A server that was configured without credentials accepts every request.
    let accepts_all = tokens.is_empty() && cluster.users.is_empty() && !cluster.requires_credentials;
    let headers = &request.headers;
    let is_issued = |token: &str| cluster.issued_tokens.user(token, cluster.clock.seconds()).is_some();
    let is_accepted = |token: &str| tokens.iter().any(|accepted| accepted == token) || is_issued(token);
    // Browsers cannot set headers on WebSockets, so the token may arrive as a subprotocol.
    let in_protocol = token_in_protocol(headers);
    let decoded = in_protocol.and_then(|token| String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok());
    let is_known =
        authorization(headers, "Bearer").is_some_and(is_accepted) || decoded.is_some_and(|token| is_accepted(&token));
    if accepts_all || is_known || request.user.is_some() {
        return Ok(());
    }
    let has_credentials = headers.contains_key(header::AUTHORIZATION) || in_protocol.is_some();
    // Wrong credentials never count as anonymous, as on the real server.
    if !cluster.settings.allows_anonymous || has_credentials {
        return Err(Status::of_code(401));
    }
    if is_cross_origin(request) {
        let detail = "a request without a token must not come from a page of another origin; send the token";
        return Err(Status::new(403, "Forbidden", detail));
    }
    Ok(())
}

/// Returns whether a page of another site in a browser may have sent the request.
///
/// The `Origin` header alone is not sufficient: a malicious site can resolve its own host name to this machine (DNS
/// rebinding), and its pages then have the origin of this server. Only `localhost` and IP addresses are safe hosts.
fn is_cross_origin(request: &RequestContext) -> bool {
    let host = request.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = request.authority.as_deref().or(host);
    let host = authority.and_then(|authority| authority.parse::<http::uri::Authority>().ok());
    let is_local = host.as_ref().is_none_or(|authority| {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok()
    });
    let is_same_origin = request.headers.get(header::ORIGIN).is_none_or(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(_, origin)| Some(origin) == authority)
    });
    !is_local || !is_same_origin
}
