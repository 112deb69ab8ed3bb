//! Subresources of core kinds that are not part of their objects: evictions, bindings and logs of pods, tokens of
//! service accounts.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, header};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::context::RequestContext;
use super::exchange::Exchange;
use super::payload;
use super::response::ApiResponse;
use super::route::ResourcePath;
use super::target::Target;
use crate::clock::Clock;
use crate::status::Status;
use crate::storage::{Deletion, Modification, ObjectKey, Patch, RequestProperties, WriteTarget};
use crate::write_scope::WriteScope;

/// Lifetime of a token without `expirationSeconds`, as on a real server.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;
/// Shortest lifetime that may be requested.
const MIN_TOKEN_SECONDS: i64 = 600;
/// Longest lifetime that may be requested: 2^32 seconds.
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

/// Subresources for discovery: resource, name, group, version, kind and verb. The group and the version are empty if
/// they equal those of the resource.
pub(super) const SUBRESOURCES: &[(&str, &str, &str, &str, &str, &str)] = &[
    ("pods", "binding", "", "", "Binding", "create"),
    ("pods", "eviction", "policy", "v1", "Eviction", "create"),
    ("pods", "log", "", "", "Pod", "get"),
    ("serviceaccounts", "token", "authentication.k8s.io", "v1", "TokenRequest", "create"),
];

/// Subresource of a core kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subresource {
    Binding,
    Eviction,
    Log,
    Token,
}

/// Returns the subresource of this name, if the resource has it.
pub(super) fn find(target: &Target, name: &str) -> Option<Subresource> {
    if !target.resource.name.group().is_empty() {
        return None;
    }
    match (target.resource.name.resource(), name) {
        ("pods", "binding") => Some(Subresource::Binding),
        ("pods", "eviction") => Some(Subresource::Eviction),
        ("pods", "log") => Some(Subresource::Log),
        ("serviceaccounts", "token") => Some(Subresource::Token),
        _ => None,
    }
}

/// Responds to a request for a subresource.
pub(super) async fn respond(
    exchange: &Exchange,
    subresource: Subresource,
    target: &Target,
    path: &ResourcePath,
    context: &RequestContext,
    body: Incoming,
) -> Result<ApiResponse, Status> {
    let name = path.name.as_deref().unwrap_or_default();
    let required_method = if subresource == Subresource::Log { Method::GET } else { Method::POST };
    if context.method != required_method {
        return Err(Status::method_not_allowed());
    }
    // Subresources use the write path, so that the history attributes their changes to this request.
    let write_target = WriteTarget {
        resource: std::sync::Arc::clone(&target.resource),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: name.to_owned(),
        write_scope: WriteScope::Main,
        is_dry_run: context.query.text("dryRun") == "All",
        request: RequestProperties::default(),
    };
    let key = ObjectKey::new(&write_target.namespace, name);
    let backend = exchange.backend();
    if subresource != Subresource::Log {
        backend.store()?;
    }
    let found = backend.object(&target.resource, &key, backend.newest_revision()).await?;
    let object = found.and_then(|change| change.object.clone());
    let object = object.ok_or_else(|| Status::not_found(&target.resource.name, name))?;
    if subresource == Subresource::Log {
        return Err(no_logs(&object, name));
    }
    let content_type = context.header(&header::CONTENT_TYPE);
    let kind = match subresource {
        Subresource::Binding => "Binding",
        Subresource::Eviction => "Eviction",
        Subresource::Log | Subresource::Token => "TokenRequest",
    };
    let posted = payload::decode_object(payload::media_type(content_type), &payload::read_body(body).await?, kind)?;
    match subresource {
        Subresource::Binding => bind(exchange, &write_target, &posted),
        Subresource::Eviction => evict(exchange, &write_target, &posted),
        Subresource::Log | Subresource::Token => token(exchange, &write_target, &posted, &object),
    }
}

/// Rejects a request for logs, which only a kubelet could provide.
fn no_logs(pod: &Value, name: &str) -> Status {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let detail = if node.is_empty() {
        format!("pod {name} runs nowhere: no scheduler assigns pods to nodes on this server, so that pods have no logs")
    } else {
        format!("pod {name} is assigned to node {node}, which has no kubelet on this server, so that pods have no logs")
    };
    Status::bad_request(detail)
}

/// Assigns a pod to a node.
fn bind(exchange: &Exchange, write_target: &WriteTarget, binding: &Value) -> Result<ApiResponse, Status> {
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Err(Status::invalid(
            "",
            "Binding",
            &write_target.name,
            &[("target.name", "Required value".to_owned())],
        ));
    }
    // The write bypasses the checks of an update, which cannot assign a pod.
    let write_target = &WriteTarget { write_scope: WriteScope::Whole, ..write_target.clone() };
    exchange.write(|state| {
        // The node is checked within the write, so that two schedulers cannot bind a pod concurrently.
        let pod =
            state.latest(&write_target.resource.name, &write_target.key()).and_then(|change| change.object.clone());
        let assigned = pod.as_deref().and_then(|pod| pod.pointer("/spec/nodeName")).and_then(Value::as_str);
        if let Some(current_node) = assigned.filter(|current_node| !current_node.is_empty()) {
            let detail = format!("pod {} is already assigned to node \"{current_node}\"", write_target.name);
            // The status is a conflict, because the scheduler must choose again with a fresh cache.
            return Err(Status::conflict(&write_target.resource.name, &write_target.name, &detail));
        }
        state.update(write_target, &Modification::Patch(Patch::Merge(json!({"spec": {"nodeName": node}})))).map(drop)
    })?;
    Ok(ApiResponse::object(201, &success_status()))
}

fn success_status() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Deletes a pod unless a disruption budget forbids the eviction.
fn evict(exchange: &Exchange, write_target: &WriteTarget, eviction: &Value) -> Result<ApiResponse, Status> {
    // The precondition protects a recreated pod with the same name.
    let uid = eviction.pointer("/deleteOptions/preconditions/uid").and_then(Value::as_str).unwrap_or_default();
    let is_dry_run = eviction.pointer("/deleteOptions/dryRun/0").is_some();
    let write_target = WriteTarget { is_dry_run: write_target.is_dry_run || is_dry_run, ..write_target.clone() };
    exchange.write(|state| {
        // A single write covers budget and deletion, so concurrent evictions cannot exceed the
        // budget.
        let budget = state.check_disruption(&write_target)?;
        let deletion = Deletion { uid: uid.to_owned(), ..Deletion::default() };
        state.delete(&write_target, &deletion)?;
        if let Some(budget) = budget.filter(|_| !write_target.is_dry_run) {
            state.spend_disruption(&write_target.namespace, &budget)?;
        }
        Ok::<_, Status>(())
    })?;
    Ok(ApiResponse::object(201, &success_status()))
}

/// Returns random bytes of the system. A token must not be predictable from the seed of the server.
fn random_bytes() -> Result<[u8; 32], Status> {
    let mut bytes = [0; 32];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| Status::new(500, "InternalError", "the system has no random numbers for a token; try again"))?;
    Ok(bytes)
}

/// Issues a token that the server accepts until the token expires.
fn token(
    exchange: &Exchange,
    write_target: &WriteTarget,
    request: &Value,
    account: &Value,
) -> Result<ApiResponse, Status> {
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_TOKEN_SECONDS);
    let invalid_lifetime = |detail: &str| {
        let detail = format!("Invalid value: {seconds}: {detail}");
        Status::invalid("authentication.k8s.io", "TokenRequest", "", &[("spec.expirationSeconds", detail)])
    };
    if seconds < MIN_TOKEN_SECONDS {
        return Err(invalid_lifetime("may not specify a duration less than 10 minutes"));
    }
    if seconds > MAX_TOKEN_SECONDS {
        return Err(invalid_lifetime("may not specify a duration larger than 2^32 seconds"));
    }
    let clock = &exchange.cluster.clock;
    let (issued, expires) = (clock.seconds(), clock.seconds().saturating_add(seconds));
    let requested_audiences = request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .filter(|requested_audiences| !requested_audiences.is_empty());
    let audiences = requested_audiences
        .cloned()
        .map_or_else(|| json!(["https://kubernetes.default.svc.cluster.local"]), Value::Array);
    let user = format!("system:serviceaccount:{}:{}", write_target.namespace, write_target.name);
    let claims = json!({
        "aud": audiences, "exp": expires, "iat": issued, "nbf": issued, "sub": user,
        "iss": "https://kubernetes.default.svc.cluster.local",
        "kubernetes.io": {
            "namespace": write_target.namespace,
            "serviceaccount": {"name": write_target.name, "uid": account.pointer("/metadata/uid")},
        },
    });
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    // Random bytes replace the signature: the server stores the tokens that it has issued.
    let signature = URL_SAFE_NO_PAD.encode(random_bytes()?);
    let header = encode(&json!({"alg": "none", "typ": "JWT"}));
    let token = format!("{header}.{}.{signature}", encode(&claims));
    // A dry run returns a token that the server does not accept.
    if !write_target.is_dry_run {
        exchange.cluster.issued_tokens.add(&token, &user, expires);
    }
    let mut spec = request.get("spec").filter(|spec| spec.is_object()).cloned().unwrap_or_else(|| json!({}));
    spec["audiences"] = audiences;
    spec["expirationSeconds"] = seconds.into();
    Ok(ApiResponse::object(
        201,
        &json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": write_target.name, "namespace": write_target.namespace, "creationTimestamp": clock.timestamp()},
            "spec": spec, "status": {"token": token, "expirationTimestamp": Clock::timestamp_of(expires)},
        }),
    ))
}
