//! Processing of a request up to its response.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, Request, Response, header};
use hyper::body::Incoming;
use serde_json::json;

use super::answer::Answer;
use super::body::ResponseBody;
use super::corruption::{corrupted, in_pieces};
use super::counters;
use super::exchange::Exchange;
use super::negotiate::{self, Encoding, Form, Included};
use super::options::{ListOptions, Query};
use super::rendering::Rendering;
use super::route::{ResourcePath, Route};
use super::target::Target;
use super::{discovery, list, payload, read, reviews, scale, streaming, subresources, watch, write};
use crate::cluster::Cluster;
use crate::faults::{self, Fate, Moment, Ruling};
use crate::net::Link;
use crate::records::{RequestRecord, Verb};
use crate::resources::GroupResource;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::Part;

/// Responds to a request.
pub(crate) async fn serve(
    cluster: Arc<Cluster>,
    link: Arc<Link>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let route = Route::of(request.uri().path());
    let mut record = record(&cluster, &link, &route, &request);
    // Rules are evaluated on arrival, so that their order is that of the requests, even if responses are delayed.
    let ruling = cluster.rules.apply(&record);
    let entry = cluster.requests.begin(record.clone());
    record.id = entry.id();
    tracing::trace!(verb = ?record.verb, path = record.path, query = record.query, replica = link.replica, "request");
    // HEAD is served like GET; the body is dropped at the end.
    let head = request.method() == Method::HEAD;
    let encoding = negotiate::told_in(&accept(&cluster, request.headers()));
    let exchange = Exchange { replica: link.replica, entry: Arc::clone(&entry), entry_verb: record.verb, cluster };
    // A frozen replica holds the request before any effect on the storage.
    exchange.gate().open().await;
    let conditions = &exchange.cluster.replicas[link.replica].conditions;
    // Copied out, because the conditions must not be locked during the wait.
    let (delay, piece_bytes) = conditions.look(|now| (now.delay, now.piece_bytes));
    if delay > Duration::ZERO {
        tokio::time::sleep(delay).await;
    }
    if let Some(Ruling::Late(wait, _)) = &ruling {
        tokio::time::sleep(*wait).await;
    }
    go_on(&exchange, &link, &record, Moment::Before).await;
    // A corrupted response needs the regular response first. Other rules replace the response, and
    // the storage stays unchanged.
    let mut answer = match ruling {
        Some(Ruling::Answer(answer) | Ruling::Late(_, Some(answer))) => ruled(&answer, &record, encoding),
        Some(Ruling::Corrupt(corruption)) => corrupted(
            answer(&exchange, route, request, record.user.as_deref())
                .await
                .unwrap_or_else(Answer::from)
                .told_in(encoding),
            corruption,
        ),
        Some(Ruling::Late(_, None)) | None => {
            answer(&exchange, route, request, record.user.as_deref()).await.unwrap_or_else(Answer::from)
        }
    };
    answer = answer.told_in(encoding);
    go_on(&exchange, &link, &record, Moment::After).await;
    // If the replica froze while the response was created, the response must not be sent either.
    exchange.gate().open().await;
    if head {
        answer = answer.without_body();
    }
    if piece_bytes > 0 {
        // After all other changes, so that the pieces are cut from the final body.
        answer = in_pieces(answer, piece_bytes);
    }
    answer.into_response(entry)
}

/// Requests the fate of a request from the interceptor. Returns when the request may continue, and never returns if it
/// is lost.
async fn go_on(exchange: &Exchange, link: &Link, request: &RequestRecord, moment: Moment) {
    match exchange.cluster.interception.ask(request, moment) {
        Fate::Goes => {}
        Fate::Waits(wait) => tokio::time::sleep(wait).await,
        Fate::Lost => {
            link.reset(exchange.cluster.clock.elapsed());
            // The connection was reset, so the task waits for its own cancellation.
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the media types that both the client accepts and the server supports.
fn accept<'a>(cluster: &Cluster, headers: &'a http::HeaderMap) -> Cow<'a, str> {
    let header_value = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if cluster.settings.protobuf { Cow::Borrowed(header_value) } else { negotiate::without_protobuf(header_value) }
}

async fn answer(
    exchange: &Exchange,
    mut route: Route,
    mut request: Request<Incoming>,
    user: Option<&str>,
) -> Result<Answer, Status> {
    authenticate(exchange, &request, user)?;
    // Before the checks of the method, since the handler of custom resources has other rules.
    if let Route::Resource(path) = &mut route {
        read_as_custom(exchange, path, &mut request);
    }
    if !route.allows(request.method()) {
        // A missing subresource is reported as `404` before the method is checked.
        if let Route::Resource(path) = &route
            && let Some(subresource) = path.subresource.as_deref()
            && Target::of(&exchange.cluster, path).is_none_or(|target| !has_subresource(&target, subresource))
        {
            return Err(Status::of_code(404).with_details(json!({})));
        }
        return Err(not_allowed(exchange, &route, request.method()));
    }
    match route {
        Route::Resource(path) => match reviews::of(&path) {
            Some(review) => {
                let (head, body) = request.into_parts();
                let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
                let object =
                    payload::object(payload::media_type(content_type), &payload::read(body).await?, review.kind)?;
                Ok(review.answer(exchange, &object, user))
            }
            None => resource(exchange, path, request).await,
        },
        Route::Unknown => Ok(Answer::page_not_found()),
        other => {
            let query = Query::parse(request.uri().query().unwrap_or_default());
            discovery::answer(exchange, &other, &query, request.headers()).await
        }
    }
}

/// Interprets a request for custom resources like their handler. The handler uses the verb of the method: it serves
/// `HEAD` like `GET`, and accepts a creation at the path of an object.
fn read_as_custom(exchange: &Exchange, path: &mut ResourcePath, request: &mut Request<Incoming>) {
    let is_head = request.method() == Method::HEAD;
    let is_creation = request.method() == Method::POST && path.name.is_some() && path.subresource.is_none();
    // Other requests need no lookup of their target yet.
    if !(is_head || is_creation) || !Target::of(&exchange.cluster, path).is_some_and(|target| target.resource.custom) {
        return;
    }
    // The handler of custom resources serves HEAD as GET and ignores the name of a creation.
    if is_head {
        *request.method_mut() = Method::GET;
    } else {
        path.name = None;
    }
}

/// Returns whether a resource has a subresource with methods of its own.
fn has_subresource(target: &Target, name: &str) -> bool {
    match name {
        "status" => target.resource.has_status(&target.version),
        "scale" => target.resource.scale(&target.version).is_some(),
        _ => subresources::of(target, name).is_some(),
    }
}

/// Creates the status for a method that a path does not support. The handler of custom resources has its own messages.
fn not_allowed(exchange: &Exchange, route: &Route, method: &Method) -> Status {
    let Route::Resource(path) = route else { return Status::method_not_allowed() };
    let Some(target) = Target::of(&exchange.cluster, path).filter(|target| target.resource.custom) else {
        return Status::method_not_allowed();
    };
    let resource = &target.resource.name;
    let verb = match method.as_str() {
        "PATCH" | "PUT" => return Status::bad_request("name must be provided"),
        "POST" => "create",
        _ => "",
    };
    Status::new(405, "MethodNotAllowed", format_args!("{verb} is not supported on resources of kind \"{resource}\""))
        .with_details(crate::status::object_details(resource, ""))
}

/// Returns the user of the certificate or the password.
fn user(cluster: &Cluster, link: &Link, headers: &http::HeaderMap) -> Option<String> {
    // A client certificate takes precedence over basic credentials.
    let shown = link.certificate.get().and_then(|certificate| cluster.tls()?.client(certificate));
    let basic = || {
        let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
        let given = String::from_utf8(STANDARD.decode(given.trim()).ok()?).ok()?;
        let (name, password) = given.split_once(':')?;
        let known = cluster.users.iter().any(|(known, secret)| known == name && secret == password);
        known.then(|| name.to_owned())
    };
    shown.or_else(basic)
}

fn authenticate(exchange: &Exchange, request: &Request<Incoming>, user: Option<&str>) -> Result<(), Status> {
    let tokens = exchange.cluster.tokens();
    // A server that was configured without credentials accepts every request.
    let open = tokens.is_empty() && exchange.cluster.users.is_empty() && !exchange.cluster.closed;
    let headers = request.headers();
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let issued = |token: &str| exchange.cluster.issued.user(token, exchange.cluster.clock.seconds()).is_some();
    let known = |token: &str| tokens.iter().any(|known| known == token) || issued(token);
    // Browsers cannot set headers on WebSockets, so the token may arrive as a subprotocol.
    let in_protocol = streaming::offered_token(headers);
    let decoded = in_protocol.and_then(|token| String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok());
    let is_known = given.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| known(token.trim()))
        || decoded.is_some_and(|token| known(&token));
    if open || is_known || user.is_some() {
        return Ok(());
    }
    let has_credentials = headers.contains_key(header::AUTHORIZATION) || in_protocol.is_some();
    // Wrong credentials never count as anonymous, as on the real server.
    if !exchange.cluster.settings.anonymous || has_credentials {
        return Err(Status::of_code(401));
    }
    if is_from_elsewhere(request) {
        let why = "a request without a token must not come from a page of another origin; send the token";
        return Err(Status::new(403, "Forbidden", why));
    }
    Ok(())
}

/// Returns whether a page of another site in a browser may have sent the request.
///
/// Checks the origin of the page, and the host name. A site can let its name server resolve its own host name to this
/// machine.
fn is_from_elsewhere(request: &Request<Incoming>) -> bool {
    let text = |name: header::HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str).or_else(|| text(header::HOST));
    let host = authority.and_then(|authority| authority.parse::<http::uri::Authority>().ok());
    // A hostile page could bind its own DNS name to this address (DNS rebinding).
    let is_local = host.as_ref().is_none_or(|authority| {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok()
    });
    let is_same_origin = request.headers().get(header::ORIGIN).is_none_or(|origin| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.is_some_and(|(_, origin)| Some(origin) == authority)
    });
    !is_local || !is_same_origin
}

async fn resource(exchange: &Exchange, path: ResourcePath, request: Request<Incoming>) -> Result<Answer, Status> {
    let Some(target) = Target::of(&exchange.cluster, &path) else {
        return not_found(exchange, &path.group);
    };
    // Only the handler of custom resources ignores further segments.
    if path.deeper && !target.resource.custom {
        return not_found(exchange, &path.group);
    }
    let deprecation = target.resource.deprecation(&target.version);
    // The deprecation warning comes first, before warnings about the content.
    let mut answer = of_target(exchange, target, path, request).await.unwrap_or_else(Answer::from);
    // An error carries the warning as well.
    if let Some(warning) = deprecation {
        answer.warnings.insert(0, warning);
    }
    Ok(answer)
}

async fn of_target(
    exchange: &Exchange,
    target: Target,
    path: ResourcePath,
    mut request: Request<Incoming>,
) -> Result<Answer, Status> {
    if path.is_streaming() {
        return streaming::answer(exchange, &target, &path, request);
    }
    if let Some(found) = path.subresource.as_deref().and_then(|name| subresources::of(&target, name)) {
        return subresources::answer(exchange, found, &target, &path, request).await;
    }
    let part = match path.subresource.as_deref() {
        None => Part::Main,
        Some("status") if target.resource.has_status(&target.version) => Part::Status,
        Some("scale") if target.resource.scale(&target.version).is_some() => Part::Main,
        Some(_) if target.resource.custom => {
            return Err(Status::not_found(&target.resource.name, path.name.as_deref().unwrap_or_default()));
        }
        Some(_) => return Err(Status::of_code(404).with_details(json!({}))),
    };
    let is_watch = Query::parse(request.uri().query().unwrap_or_default()).is_watch();
    // The upgrade must be taken from the request before its parts are moved.
    let socket = if is_watch { streaming::EventSocket::of(&mut request)? } else { None };
    let (head, body) = request.into_parts();
    let text = |name: header::HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let accepted = negotiate::accepted(&accept(&exchange.cluster, &head.headers), target.resource.custom)?;
    let mut rendering = rendering(exchange, &target, &path, accepted);
    if rendering.form == Form::Table {
        rendering.included = negotiate::included(query.text("includeObject"))?;
    }
    let verb = verb(&head.method, path.name.is_some(), &query);
    let selector = || Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), &target.resource);
    match verb {
        Verb::Get if path.subresource.as_deref() != Some("scale") => {
            let name = path.name.as_deref().unwrap_or_default();
            read::get(&exchange.cluster, exchange.replica, &target, name, &query, &rendering).await
        }
        Verb::List | Verb::Page | Verb::Probe | Verb::State => {
            let options = list_options(&query, &rendering)?;
            list::list(exchange, &target, &options, &selector()?, rendering).await
        }
        Verb::Watch | Verb::StreamedList => {
            let options = list_options(&query, &rendering)?;
            let encoding = rendering.encoding;
            let answer = watch::watch(exchange, &target, &options, selector()?, rendering).await?;
            Ok(match socket {
                Some(socket) => socket.carry(answer, exchange, encoding),
                None => answer,
            })
        }
        _ => {
            let content_type = payload::media_type(Some(text(header::CONTENT_TYPE)));
            let write = write::Write {
                target: &target,
                name: path.name.as_deref().unwrap_or_default(),
                part,
                query: &query,
                content_type,
                user_agent: text(header::USER_AGENT),
                body: payload::read(body).await?,
            };
            if path.subresource.as_deref() == Some("scale") {
                return scale::answer(exchange, verb, &write, &rendering).await;
            }
            if verb == Verb::DeleteCollection {
                let options = ListOptions::parse(&query)?;
                return write::delete_collection(exchange, &write, &options, &selector()?, rendering).await;
            }
            write::write(exchange, verb, &write, &rendering).await
        }
    }
}

/// Creates the response for an unknown resource. Groups of built-in kinds send their own response.
fn not_found(exchange: &Exchange, group: &str) -> Result<Answer, Status> {
    // A missing resource of a built-in group is reported as a `Status`, a missing group as plain
    // text.
    let known = exchange
        .cluster
        .store
        .read(|state| state.registry.all().any(|served| served.name.group() == group && !served.custom));
    if known { Err(Status::of_code(404).with_details(json!({}))) } else { Ok(Answer::page_not_found()) }
}

fn list_options(query: &Query, rendering: &Rendering) -> Result<ListOptions, Status> {
    let options = ListOptions::parse(query)?;
    let version = options.version.filter(|_| rendering.own_counters);
    Ok(ListOptions { version: version.map(counters::revision).or(options.version), ..options })
}

fn rendering(exchange: &Exchange, target: &Target, path: &ResourcePath, accepted: (Form, Encoding)) -> Rendering {
    let conditions = &exchange.cluster.replicas[exchange.replica].conditions;
    let (spoiled, own_counters) = conditions.look(|now| (Arc::clone(&now.spoiled), now.own_counters));
    Rendering {
        form: accepted.0,
        encoding: accepted.1,
        resource: Arc::clone(&target.resource),
        api_version: target.resource.api_version(&path.version),
        clock: exchange.cluster.clock,
        included: Included::Metadata,
        with_columns: true,
        spoiled,
        own_counters,
    }
}

fn verb(method: &Method, named: bool, query: &Query) -> Verb {
    match (method.as_str(), named) {
        ("GET", true) => Verb::Get,
        ("GET", false) if query.is_watch() => {
            // A watch without a version delivers the whole collection first.
            let everything = query.flag("sendInitialEvents") == Some(true)
                || matches!(query.text("resourceVersion"), "" | "0") && query.flag("sendInitialEvents").is_none();
            // A streamed list of nothing transfers no object, and does not count as a full transfer.
            if everything && !is_of_nothing(query) { Verb::StreamedList } else { Verb::Watch }
        }
        ("GET", false) if !query.text("continue").is_empty() => Verb::Page,
        // Such a list only serves to read the version of the collection.
        ("GET", false) if query.text("limit") == "1" || is_of_nothing(query) => Verb::Probe,
        // Steadfast reads a single object at a version in this way to determine a missed state.
        ("GET", false) if query.text("resourceVersionMatch") == "Exact" && names(query) == 1 => Verb::State,
        ("GET", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

/// Returns whether the query requests two names at once, which matches no object. Such a list transfers only a version.
fn is_of_nothing(query: &Query) -> bool {
    names(query) > 1
}

/// Returns the number of requested names.
fn names(query: &Query) -> usize {
    query.text("fieldSelector").split(',').filter(|term| term.trim().starts_with("metadata.name=")).count()
}

fn record(cluster: &Cluster, link: &Link, route: &Route, request: &Request<Incoming>) -> RequestRecord {
    let query = request.uri().query().unwrap_or_default();
    let (verb, resource) = match route {
        Route::Resource(path) => (
            verb(request.method(), path.name.is_some(), &Query::parse(query)),
            Some(GroupResource::new(&path.group, &path.plural)),
        ),
        _ => (Verb::Other, None),
    };
    let user_agent = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    RequestRecord {
        id: 0,
        at: cluster.clock.elapsed(),
        replica: link.replica,
        connection: link.id,
        verb,
        resource,
        path: request.uri().path().to_owned(),
        query: query.to_owned(),
        user_agent: user_agent.unwrap_or_default().to_owned(),
        user: user(cluster, link, request.headers()),
        impersonation: request
            // All impersonation headers are recorded, including the extra fields.
            .headers()
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("impersonate-"))
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        code: None,
        bytes_sent: 0,
        finished: false,
    }
}

fn ruled(answer: &faults::Answer, record: &RequestRecord, encoding: Encoding) -> Answer {
    match answer {
        faults::Answer::Status(status) => status.clone().into(),
        faults::Answer::InStream(status) => match record.verb {
            Verb::Watch | Verb::StreamedList => watch::error_event(status, encoding),
            _ => status.clone().into(),
        },
        faults::Answer::ErrorObject(object) => match record.verb {
            Verb::Watch | Verb::StreamedList => watch::error_object(object, encoding),
            _ => Status::of_code(500).into(),
        },
        faults::Answer::Forbidden => forbidden(record).into(),
    }
}

/// Creates a `403` status with the message of a real server.
fn forbidden(record: &RequestRecord) -> Status {
    let user = "system:anonymous";
    let verb = record.verb.as_str();
    let Some(resource) = &record.resource else {
        return Status::of_code(403)
            .with_message(format_args!("forbidden: User \"{user}\" cannot {verb} path \"{}\"", record.path));
    };
    let (name, scope) = match Route::of(&record.path) {
        Route::Resource(path) => {
            let scope = path.namespace.map(|namespace| format!("in the namespace \"{namespace}\""));
            (path.name.unwrap_or_default(), scope.unwrap_or_else(|| "at the cluster scope".to_owned()))
        }
        _ => (String::new(), "at the cluster scope".to_owned()),
    };
    let why = format!(
        "User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\" {scope}",
        resource.resource(),
        resource.group()
    );
    Status::forbidden(resource, &name, &why)
}
