//! Parsed request, except for its body.

use std::borrow::Cow;

use http::{HeaderMap, Method, Request, header};
use hyper::body::Incoming;

use super::credentials;
use super::negotiate::{self, Encoding, Form};
use super::options::Query;
use super::route::Route;
use crate::cluster::Cluster;
use crate::net::Link;
use crate::records::{RequestRecord, Verb};
use crate::resources::GroupResource;
use crate::status::Status;

/// Parsed request, except for its body. All later steps read the request from here.
pub(super) struct RequestContext {
    pub(super) method: Method,
    /// Full path, as sent.
    path: String,
    pub(super) route: Route,
    pub(super) verb: Verb,
    /// Text of the query, as sent.
    raw_query: String,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    /// Authority of the URI; HTTP/2 sends it instead of a `Host` header.
    pub(super) authority: Option<String>,
    /// Media types that the client accepts and the server supports.
    accept: String,
    /// Encoding of a `Status` response, such as an error.
    pub(super) encoding: Encoding,
    /// User of the certificate or the password.
    pub(super) user: Option<String>,
}

impl RequestContext {
    pub(super) fn from_request(cluster: &Cluster, link: &Link, request: &Request<Incoming>) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let raw_query = uri.query().unwrap_or_default();
        let (route, query) = (Route::parse(uri.path()), Query::parse(raw_query));
        let accept = supported_media_types(cluster, headers);
        Self {
            verb: request_verb(request.method(), &route, &query),
            encoding: negotiate::status_encoding(&accept),
            accept: accept.into_owned(),
            user: credentials::user(cluster, link, headers),
            method: request.method().clone(),
            path: uri.path().to_owned(),
            route,
            raw_query: raw_query.to_owned(),
            query,
            headers: headers.clone(),
            authority: uri.authority().map(|authority| authority.as_str().to_owned()),
        }
    }

    /// Returns the text of a header; empty if the header is absent. Of several lines of a header, the first one counts,
    /// as on a real server.
    pub(super) fn header(&self, name: &header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the form and the encoding of the response. Custom resources have no protobuf messages.
    pub(super) fn accepted(&self, is_custom: bool) -> Result<(Form, Encoding), Status> {
        negotiate::negotiate(&self.accept, is_custom)
    }

    /// Interprets the request as if it had the method `method`.
    pub(super) fn set_method(&mut self, method: Method) {
        self.verb = request_verb(&method, &self.route, &self.query);
        self.method = method;
    }

    /// Creates the record of the request.
    pub(super) fn record(&self, cluster: &Cluster, link: &Link) -> RequestRecord {
        let impersonation = self.headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
        RequestRecord {
            id: 0,
            at: cluster.clock.elapsed(),
            replica: link.replica,
            connection: link.id,
            verb: self.verb,
            resource: match &self.route {
                Route::Resource(path) => Some(GroupResource::new(&path.group, &path.plural)),
                _ => None,
            },
            path: self.path.clone(),
            query: self.raw_query.clone(),
            user_agent: self.header(&header::USER_AGENT).to_owned(),
            user: self.user.clone(),
            // All impersonation headers are recorded, including the extra fields.
            impersonation: impersonation
                .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
                .collect(),
            code: None,
            bytes_sent: 0,
            finished: false,
        }
    }
}

/// Returns the media types that the client accepts and the server supports.
///
/// By RFC 9110, several lines of `Accept` are one list. A real server reads only the first line (`Header.Get` of Go).
/// This server does the same, so that no client works with this server and fails with a real one.
fn supported_media_types<'a>(cluster: &Cluster, headers: &'a HeaderMap) -> Cow<'a, str> {
    let header_value = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if cluster.settings.allows_protobuf {
        Cow::Borrowed(header_value)
    } else {
        negotiate::without_protobuf(header_value)
    }
}

/// Returns the verb of a request; [`Verb::Other`] for requests without a resource.
fn request_verb(method: &Method, route: &Route, query: &Query) -> Verb {
    let Route::Resource(path) = route else { return Verb::Other };
    match (method.as_str(), path.name.is_some()) {
        ("GET", true) => Verb::Get,
        ("GET", false) if query.is_watch() => {
            // A watch without a version delivers the whole collection first.
            let wants_all_objects = query.flag("sendInitialEvents") == Some(true)
                || matches!(query.text("resourceVersion"), "" | "0") && query.flag("sendInitialEvents").is_none();
            // A streamed list that matches no object does not count as a full transfer.
            if wants_all_objects && !matches_no_object(query) { Verb::StreamedList } else { Verb::Watch }
        }
        ("GET", false) if !query.text("continue").is_empty() => Verb::Page,
        // A client sends such a list only to read the version of the collection.
        ("GET", false) if query.text("limit") == "1" || matches_no_object(query) => Verb::Probe,
        // Steadfast sends such a list of one name at an exact version, to read the state of an object at that version.
        ("GET", false) if query.text("resourceVersionMatch") == "Exact" && requested_name_count(query) == 1 => {
            Verb::ListByName
        }
        ("GET", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

/// Returns whether the field selector has several terms for the name. Clients send such a selector with different
/// names, so that no object matches. The response then transfers only a version.
fn matches_no_object(query: &Query) -> bool {
    requested_name_count(query) > 1
}

/// Returns the number of requested names.
fn requested_name_count(query: &Query) -> usize {
    query.text("fieldSelector").split(',').filter(|term| term.trim().starts_with("metadata.name=")).count()
}
