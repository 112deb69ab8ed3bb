//! Requests to etcd's JSON gateway, each to the first endpoint that answers.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use serde_json::Value as Json;
use tokio::net::TcpStream;

use crate::exchange::exchange;

/// Why keys cannot be seen or changed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// Nobody's keys.
    #[error("a mirror in etcd needs a prefix and a mark: all of etcd is nobody's alone")]
    Empty,
    /// It can be no endpoint.
    #[error("{0:?} is no endpoint of etcd: it has to be of the form http://HOST:PORT; https is not spoken here yet")]
    Endpoint(String),
    /// Nobody answers.
    #[error(
        "etcd does not answer at {endpoint}: {why}; is it in its `--advertise-client-urls`, and not for TLS alone?"
    )]
    Socket {
        /// The last one that was asked.
        endpoint: String,
        /// What the system said.
        why: String,
    },
    /// Keys are not as they were when they were looked at: somebody else has put them there, or taken them away. Nothing of them was changed.
    #[error("somebody has changed {} since it was looked at, and nothing of it is touched; it is looked at again", .keys.join(", "))]
    Taken {
        /// The keys.
        keys: Vec<String>,
    },
    /// It does not do it.
    #[error("etcd refuses `/v3/{asked}`: {answer}{}", remedy(.answer))]
    Refused {
        /// What it was asked.
        asked: &'static str,
        /// What it said.
        answer: String,
    },
    /// It answers what this was not written for.
    #[error("etcd answered `/v3/{asked}` in an unknown form: {why}")]
    Unexpected {
        /// What it was asked.
        asked: &'static str,
        /// What is unknown about it.
        why: String,
    },
}

/// What to do about an answer.
fn remedy(answer: &str) -> &'static str {
    match answer {
        _ if answer.contains("user name is empty") || answer.contains("permission denied") => {
            "; it asks who is there, and a mirror has no user of etcd yet"
        }
        _ if answer.contains("space exceeded") => {
            "; its quota is used up: compact and defragment it, and `etcdctl alarm disarm`"
        }
        _ if answer.contains("lease not found") => {
            "; the lease has ended meanwhile, and is granted again after the next look"
        }
        _ if answer.contains("no leader") || answer.contains("timed out") => "; most of its members have to be there",
        _ if answer.contains("too large") => "; a value may have up to 1.5 MiB, unless `--max-request-bytes` says more",
        _ if answer.starts_with("404") => "; the gateway at /v3 takes etcd 3.4, and no `--enable-grpc-gateway=false`",
        _ => "",
    }
}

#[derive(Clone, Debug)]
pub(super) struct Gateway {
    /// HOST:PORT of each.
    endpoints: Vec<String>,
}

impl Gateway {
    pub(super) fn new(endpoints: &[&str]) -> Result<Self, EtcdError> {
        let plain = |endpoint: &&str| {
            let uri: Uri = endpoint.parse().ok()?;
            let is_plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/") && uri.query().is_none();
            let authority = uri.authority().filter(|authority| is_plain && authority.port_u16().is_some())?;
            (!authority.as_str().contains('@')).then(|| authority.to_string())
        };
        let parsed =
            endpoints.iter().map(|endpoint| plain(endpoint).ok_or_else(|| EtcdError::Endpoint((*endpoint).to_owned())));
        let endpoints = parsed.collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() { Err(EtcdError::Endpoint(String::new())) } else { Ok(Self { endpoints }) }
    }

    /// As etcdctl takes them.
    pub(super) fn endpoints(&self) -> String {
        self.endpoints.join(",")
    }

    pub(super) fn unexpected(&self, asked: &'static str, why: &str) -> EtcdError {
        EtcdError::Unexpected { asked, why: format!("{why} (from {})", self.endpoints()) }
    }

    /// What is answered to `body` at `/v3/ASKED`. Only where there is no connection at all the next endpoint is asked: what was sent to one may
    /// have been done.
    pub(super) async fn ask(&self, asked: &'static str, body: &Json) -> Result<Json, EtcdError> {
        let mut failed = EtcdError::Empty;
        for endpoint in &self.endpoints {
            match TcpStream::connect(endpoint).await {
                Ok(stream) => {
                    let told = |why: Box<dyn std::error::Error + Send + Sync>| EtcdError::Socket {
                        endpoint: endpoint.clone(),
                        why: why.to_string(),
                    };
                    let (status, answer) = post(stream, endpoint, asked, body).await.map_err(told)?;
                    return self.read(asked, status, &answer);
                }
                Err(why) => failed = EtcdError::Socket { endpoint: endpoint.clone(), why: why.to_string() },
            }
        }
        Err(failed)
    }

    fn read(&self, asked: &'static str, status: StatusCode, answer: &[u8]) -> Result<Json, EtcdError> {
        let json: Result<Json, _> = serde_json::from_slice(answer);
        if !status.is_success() {
            // It says what is wrong, or is somebody else's page.
            let said = json.ok().and_then(|json| json["error"].as_str().map(str::to_owned));
            let answer = said.unwrap_or_else(|| status.to_string());
            return Err(EtcdError::Refused { asked, answer });
        }
        let json = json.map_err(|error| self.unexpected(asked, &format!("it is no JSON: {error}")))?;
        // A stream says there what is wrong with it.
        match json["error"]["message"].as_str().or(json["error"].as_str()) {
            Some(said) => Err(EtcdError::Refused { asked, answer: said.to_owned() }),
            None => Ok(json),
        }
    }
}

async fn post(
    stream: TcpStream,
    host: &str,
    asked: &str,
    body: &Json,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let request = Request::post(format!("/v3/{asked}")).header(HOST, host).header(CONTENT_TYPE, "application/json");
    let request = request.body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
    let response = exchange(stream, request).await?;
    Ok((response.status(), response.into_body()))
}
