//! Kubernetes' protobuf: requests and responses have the same content as in JSON.

use crate::support::{CONFIG_MAPS, Client, Failure, config_map, in_memory_server, labelled, version_of};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use steadfast_apiserver::protobuf::{decode, encode};
use steadfast_apiserver::{ApiServer, ResourceDeclaration};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA_ACCEPT: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WATCH_CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

async fn send(
    client: &mut Client,
    method: Method,
    path: &str,
    accept: &str,
    body: Vec<u8>,
) -> Result<(u16, String, Incoming), Failure> {
    let request = Request::builder().method(method).uri(format!("http://localhost{path}")).header("accept", accept);
    let request = request.header(header::CONTENT_TYPE, PROTOBUF).body(Full::new(Bytes::from(body)))?;
    let response = client.send(request).await?;
    let content_type = response.headers()[header::CONTENT_TYPE].to_str()?.to_owned();
    Ok((response.status().as_u16(), content_type, response.into_body()))
}

/// Performs a request. Returns the status code, the content type and the decoded body of the response.
async fn call(
    client: &mut Client,
    method: Method,
    path: &str,
    accept: &str,
    body: Vec<u8>,
) -> Result<(u16, String, Value), Failure> {
    let (code, content_type, body) = send(client, method, path, accept, body).await?;
    let bytes = body.collect().await?.to_bytes();
    let value = if content_type == PROTOBUF { decode(&bytes)? } else { serde_json::from_slice(&bytes)? };
    Ok((code, content_type, value))
}

async fn get(client: &mut Client, path: &str, accept: &str) -> Result<(u16, String, Value), Failure> {
    call(client, Method::GET, path, accept, Vec::new()).await
}

/// Frames of a watch.
struct Frames {
    body: Incoming,
    buffered: Vec<u8>,
}

impl Frames {
    async fn open(client: &mut Client, path: &str, accept: &str) -> Result<Self, Failure> {
        let (code, content_type, body) = send(client, Method::GET, path, accept, Vec::new()).await?;
        assert_eq!((code, content_type.as_str()), (200, WATCH_CONTENT_TYPE));
        Ok(Self { body, buffered: Vec::new() })
    }

    /// Returns the next event's type, and its object with its envelope.
    async fn next(&mut self) -> Result<(String, Vec<u8>), Failure> {
        loop {
            if let Some((length, rest)) = self.buffered.split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if let Some(frame) = rest.get(..length) {
                    let mut event = frame;
                    let kind = String::from_utf8(field(1, &mut event).to_vec())?;
                    let object = field(1, &mut field(2, &mut event)).to_vec();
                    assert!(event.is_empty(), "an event has a type and an object");
                    self.buffered.drain(..4 + length);
                    return Ok((kind, object));
                }
            }
            let frame = self.body.frame().await.ok_or("the stream has ended")??;
            self.buffered.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }

    async fn event(&mut self) -> Result<(String, Value), Failure> {
        let (kind, object) = self.next().await?;
        Ok((kind, decode(&object)?))
    }
}

/// Removes the next field, which must have this number and contain bytes.
fn field<'a>(number: u8, message: &mut &'a [u8]) -> &'a [u8] {
    assert_eq!(message[0], number << 3 | 2);
    let (mut length, mut offset) = (0, 1);
    for shift in (0..).step_by(7) {
        length |= usize::from(message[offset] & 0x7f) << shift;
        offset += 1;
        if message[offset - 1] < 0x80 {
            break;
        }
    }
    let (bytes, rest) = message[offset..].split_at(length);
    *message = rest;
    bytes
}

async fn protobuf_server() -> Result<ApiServer, Failure> {
    Ok(ApiServer::builder().in_memory().protobuf(true).start().await?)
}

async fn server_with_objects(names: &[&str]) -> Result<(ApiServer, Client), Failure> {
    let server = protobuf_server().await?;
    for name in names {
        server.create(&labelled(name, &json!({"app": name})))?;
    }
    let client = Client::in_memory(&server, 0).await?;
    Ok((server, client))
}

#[tokio::test(start_paused = true)]
async fn protobuf_reads_equal_json_reads() -> Result<(), Failure> {
    let (_server, mut client) = server_with_objects(&["a", "b", "c"]).await?;
    let json = client.get(&format!("{CONFIG_MAPS}/a")).await.1;
    assert_eq!(get(&mut client, &format!("{CONFIG_MAPS}/a"), PROTOBUF).await?, (200, PROTOBUF.to_owned(), json));
    for query in ["", "?resourceVersion=0", "?limit=2", "?labelSelector=app%3Db"] {
        let path = format!("{CONFIG_MAPS}{query}");
        let mut json = client.get(&path).await.1;
        let (code, content_type, mut list) = get(&mut client, &path, PROTOBUF).await?;
        assert_eq!((code, content_type.as_str()), (200, PROTOBUF));
        // Both lists have the same revision, so their tokens are equal.
        for list in [&mut json, &mut list] {
            assert_eq!(list["metadata"]["continue"].is_string(), query == "?limit=2");
        }
        // In both encodings, only the list has `kind` and `apiVersion`, and its items have neither.
        assert_eq!(list, json, "{query}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn server_without_protobuf_responds_in_json() -> Result<(), Failure> {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await?;
    let body = encode(&config_map("a")).ok_or("no such kind")?;
    let both = format!("{PROTOBUF},application/json");
    let (code, content_type, created) = call(&mut client, Method::POST, CONFIG_MAPS, &both, body).await?;
    assert_eq!((code, content_type.as_str(), &created["data"]["k"]), (201, "application/json", &json!("v")));
    assert_eq!(get(&mut client, CONFIG_MAPS, PROTOBUF).await?.0, 406);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn large_list_is_one_message() -> Result<(), Failure> {
    let server = protobuf_server().await?;
    for number in 0..500 {
        let mut object = config_map(&format!("{number:03}"));
        object["data"]["k"] = "v".repeat(500).into();
        server.create(&object)?;
    }
    let mut client = Client::in_memory(&server, 0).await?;
    let (_, _, list) = get(&mut client, CONFIG_MAPS, PROTOBUF).await?;
    assert_eq!(list, client.get(CONFIG_MAPS).await.1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn streamed_list_arrives_in_frames() -> Result<(), Failure> {
    let (server, mut client) = server_with_objects(&["a"]).await?;
    let streamed = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut frames = Frames::open(&mut client, &format!("{CONFIG_MAPS}?{streamed}"), PROTOBUF).await?;
    let a = client.get(&format!("{CONFIG_MAPS}/a")).await.1;
    assert_eq!(frames.event().await?, ("ADDED".to_owned(), a));
    let (kind, end) = frames.event().await?;
    assert_eq!((kind.as_str(), version_of(&end)), ("BOOKMARK", server.revision()));
    assert_eq!(end["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    server.merge_patch("configmaps", "default", "a", json!({"data": {"k": "w"}}))?;
    let (kind, changed) = frames.event().await?;
    assert_eq!((kind.as_str(), changed), ("MODIFIED", client.get(&format!("{CONFIG_MAPS}/a")).await.1));
    server.delete_named("configmaps", "default", "a")?;
    let (kind, last) = frames.event().await?;
    assert_eq!((kind.as_str(), version_of(&last)), ("DELETED", server.revision()));
    assert_eq!(last["data"]["k"], "w");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn errors_use_the_requested_encoding() -> Result<(), Failure> {
    let (server, mut client) = server_with_objects(&["a"]).await?;
    let (code, content_type, status) = get(&mut client, &format!("{CONFIG_MAPS}/z"), PROTOBUF).await?;
    assert_eq!((code, content_type.as_str()), (404, PROTOBUF));
    let mut json = client.get(&format!("{CONFIG_MAPS}/z")).await.1;
    // In JSON, the metadata of a status is an empty object. In protobuf, it is absent.
    json.as_object_mut().expect("a status").remove("metadata");
    assert_eq!(status, json);
    server.faults().expire_events();
    let mut frames = Frames::open(&mut client, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1"), PROTOBUF).await?;
    let (kind, status) = frames.event().await?;
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    let table = format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1");
    let (code, content_type, _) = get(&mut client, CONFIG_MAPS, &table).await?;
    assert_eq!((code, content_type.as_str()), (406, "application/json"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn custom_resources_only_encode_metadata() -> Result<(), Failure> {
    let server = ApiServer::builder()
        .in_memory()
        .protobuf(true)
        .resource(ResourceDeclaration::namespaced("example.com", "v1", "Widget", "widgets"))
        .start()
        .await?;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    server.create(&widget)?;
    let mut client = Client::in_memory(&server, 0).await?;
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let (code, content_type, status) = get(&mut client, path, PROTOBUF).await?;
    assert_eq!((code, content_type.as_str(), &status["reason"]), (406, PROTOBUF, &json!("NotAcceptable")));
    let (code, content_type, list) = get(&mut client, path, &format!("{PROTOBUF},application/json")).await?;
    assert_eq!(
        (code, content_type.as_str(), list["items"][0]["kind"].as_str()),
        (200, "application/json", Some("Widget"))
    );
    let (_, content_type, list) = get(&mut client, path, METADATA_ACCEPT).await?;
    assert_eq!((content_type.as_str(), list["kind"].as_str()), (PROTOBUF, Some("PartialObjectMetadataList")));
    assert_eq!(list["items"][0]["metadata"]["name"], "w");
    let path = format!("{path}?watch=1&resourceVersion={}", server.revision());
    let mut frames = Frames::open(&mut client, &path, METADATA_ACCEPT).await?;
    server.delete(&widget)?;
    let (kind, object) = frames.event().await?;
    assert_eq!((kind.as_str(), &object["metadata"]["name"]), ("DELETED", &json!("w")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stored_object_is_independent_of_encoding() -> Result<(), Failure> {
    let server = protobuf_server().await?;
    let mut client = Client::in_memory(&server, 0).await?;
    let deployment = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"a": "", "b": "c"}},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": {"a": ""}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}, "type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": {"a": ""}},
                    "spec": {
                        "containers": [{
                            "name": "c", "image": "i", "args": ["", "x"],
                            "resources": {"limits": {"cpu": "100m"}},
                            "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3},
                        }],
                        "volumes": [{"name": "v", "emptyDir": {}}],
                        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                    },
                },
            },
        })
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (code, _) = client.call(Method::POST, path, &deployment("json")).await?;
    assert_eq!(code, 201);
    let body = encode(&deployment("protobuf")).ok_or("no such kind")?;
    let (code, content_type, created) = call(&mut client, Method::POST, path, PROTOBUF, body).await?;
    assert_eq!((code, content_type.as_str()), (201, PROTOBUF));
    let stored = |name: &str| {
        let mut object = server.get("deployments", "default", name).expect("the object is stored");
        for field in ["name", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            object["metadata"].as_object_mut().expect("metadata").remove(field);
        }
        object
    };
    assert_eq!(stored("protobuf"), stored("json"));
    // A replacement in one encoding, then in the other.
    let mut changed = created;
    changed["spec"]["replicas"] = 3.into();
    let body = encode(&changed).ok_or("no such kind")?;
    let (code, _, _) = call(&mut client, Method::PUT, &format!("{path}/protobuf"), PROTOBUF, body).await?;
    assert_eq!(code, 200);
    let mut other = client.get(&format!("{path}/json")).await.1;
    other["spec"]["replicas"] = 3.into();
    assert_eq!(client.call(Method::PUT, &format!("{path}/json"), &other).await?.0, 200);
    assert_eq!(stored("protobuf"), stored("json"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn corrupted_object_cannot_be_decoded() -> Result<(), Failure> {
    let (server, mut client) = server_with_objects(&["a", "b"]).await?;
    server.faults().undecodable("default", "a", true);
    let (_, _, body) = send(&mut client, Method::GET, CONFIG_MAPS, PROTOBUF, Vec::new()).await?;
    assert_eq!(decode(&body.collect().await?.to_bytes()).map_err(|status| status.code), Err(400));
    let (_, _, b) = get(&mut client, &format!("{CONFIG_MAPS}/b"), PROTOBUF).await?;
    assert_eq!(b["data"]["k"], "v");
    Ok(())
}
