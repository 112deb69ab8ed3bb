//! Credentials in the headers and in the certificate of a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};

use crate::cluster::Cluster;
use crate::net::Link;

/// Subprotocol that carries a bearer token: pages in a browser cannot set a header.
pub(super) const BEARER_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns the user of the certificate or the password.
pub(super) fn user(cluster: &Cluster, link: &Link, headers: &HeaderMap) -> Option<String> {
    // A client certificate takes precedence over basic credentials.
    let certificate_user =
        link.certificate.get().and_then(|certificate| cluster.tls()?.user_of_certificate(certificate));
    let password_user = || {
        let encoded = authorization(headers, "Basic")?;
        let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (name, password) = decoded.split_once(':')?;
        let is_known = cluster.users.iter().any(|(known, secret)| known == name && secret == password);
        is_known.then(|| name.to_owned())
    };
    certificate_user.or_else(password_user)
}

/// Returns the credentials in the header `Authorization` if they have this scheme. The case of the scheme has no
/// significance (RFC 9110).
pub(super) fn authorization<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let (found, credentials) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| credentials.trim())
}

/// Returns the token that a client sends as a subprotocol, still encoded.
pub(super) fn token_in_protocol(headers: &HeaderMap) -> Option<&str> {
    protocols(headers).find_map(|protocol| protocol.strip_prefix(BEARER_PREFIX))
}

/// Returns the offered subprotocols of a WebSocket, in order.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}
