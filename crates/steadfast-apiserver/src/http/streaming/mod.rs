//! Requests that switch to WebSocket: watches, and `exec`, `attach` and `portforward` of pods, which only echo.
//!
//! | module | content |
//! |---|---|
//! | `channels` | numbered byte streams on one WebSocket |
//! | `command` | command that prints its arguments and echoes its input |
//! | `ports` | forwarded ports, which echo their input |
//! | `events` | watches, one frame for each event |
//! | `handshake` | handshake for the switch to WebSocket |

mod channels;
mod command;
mod events;
mod handshake;
mod ports;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Incoming;
use serde_json::Value;

use super::context::RequestContext;
use super::exchange::Exchange;
use super::response::ApiResponse;
use super::route::ResourcePath;
use super::target::Target;
use crate::status::Status;
use crate::storage::ObjectKey;
use channels::Channels;
pub(super) use events::EventSocket;
pub(crate) use handshake::Sessions;
use handshake::{Handshake, offered_protocols};

/// Requested session.
enum Session {
    Command(command::Command),
    Ports(ports::Ports),
}

impl Session {
    /// Returns the supported subprotocols, in their textual form.
    fn protocols(&self) -> &'static [&'static str] {
        match self {
            Self::Command(_) => &["v5.channel.k8s.io", "v4.channel.k8s.io"],
            Self::Ports(_) => &["v4.channel.k8s.io"],
        }
    }
}

/// Switches to WebSocket, or returns the status that rejects the request.
pub(super) async fn respond(
    exchange: &Exchange,
    target: &Target,
    path: &ResourcePath,
    context: &RequestContext,
    mut request: Request<Incoming>,
) -> Result<ApiResponse, Status> {
    let name = path.name.as_deref().unwrap_or_default();
    let key = ObjectKey::new(target.namespace.as_deref().unwrap_or_default(), name);
    // The pod is checked before the upgrade, so that the client receives an ordinary status.
    let backend = exchange.backend();
    let found = backend.object(&target.resource, &key, backend.newest_revision()).await?;
    let pod = found.and_then(|change| change.object.clone());
    let pod = pod.ok_or_else(|| Status::not_found(&target.resource.name, name))?;
    let query = &context.query;
    let session = match path.subresource.as_deref() {
        Some("portforward") => Session::Ports(ports::Ports::parse(query)?),
        subresource => {
            // Only containers have commands; ports belong to the whole pod.
            check_container(&pod, name, query.text("container"))?;
            Session::Command(command::Command::parse(query, subresource == Some("exec"))?)
        }
    };
    let Some(handshake) = Handshake::from_request(&mut request)? else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let Handshake { sessions, accept, upgrade } = handshake;
    let protocol = agree_on_protocol(&context.headers, session.protocols())?;
    let (freeze_gate, entry) = (exchange.freeze_gate(), Arc::clone(&exchange.entry));
    // The upgrade completes only after the response was sent, so the session runs separately.
    sessions.put(Box::pin(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let channels = Channels::accept(upgraded, freeze_gate, entry).await;
        match session {
            Session::Command(command) => command.run(channels).await,
            Session::Ports(ports) => ports.run(channels).await,
        }
    }));
    Ok(ApiResponse::websocket_upgrade(accept, Some(HeaderValue::from_static(protocol))))
}

fn check_container(pod: &Value, name: &str, container: &str) -> Result<(), Status> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let names = |list: &str| {
        let containers = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        containers.iter().filter_map(|container| container["name"].as_str()).collect::<Vec<_>>()
    };
    if !container.is_empty() {
        let exists = lists.into_iter().any(|list| names(list).contains(&container));
        let missing = || Status::bad_request(format_args!("container {container} is not valid for pod {name}"));
        return if exists { Ok(()) } else { Err(missing()) };
    }
    match names("containers").as_slice() {
        [_] => Ok(()),
        [] => Err(Status::bad_request(format_args!("a container name must be specified for pod {name}"))),
        several => Err(Status::bad_request(format_args!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            several.join(" ")
        ))),
    }
}

/// Returns the first offered subprotocol that is `supported`.
fn agree_on_protocol(headers: &HeaderMap, supported: &'static [&'static str]) -> Result<&'static str, Status> {
    let offered = offered_protocols(headers);
    // The order of the client decides among the supported protocols.
    let supported_protocol = |offer: &&str| supported.iter().find(|protocol| *protocol == offer).copied();
    offered.iter().find_map(supported_protocol).ok_or_else(|| {
        Status::new(
            403,
            "Forbidden",
            format_args!(
                "requested protocol(s) are not supported: [{}]; supports [{}]",
                offered.join(" "),
                supported.join(" ")
            ),
        )
    })
}
