//! In-memory server of raw bytes, correct except for the configured attack.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::Connection;
use steadfast::environment::Socket;
use steadfast::environment::local::{LocalEnvironment, Pipe};
use steadfast::transport::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Bytes sent instead of a correct response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attack {
    /// True for responses to watches, false for lists.
    pub(crate) is_watch: bool,
    /// Text that a request's head must contain.
    pub(crate) required_text: &'static str,
    /// Bytes sent first.
    pub(crate) bytes: Vec<u8>,
    /// Bytes sent repeatedly afterwards, until the client closes.
    pub(crate) endless: Vec<u8>,
    /// Pause between the repetitions.
    pub(crate) pause: Duration,
    /// True if the server closes afterwards instead of waiting for the next request.
    pub(crate) closes: bool,
}

/// Returns a response to a list or watch with this head and body.
pub(crate) fn response(head: &str, body: &str) -> Attack {
    let length = body.len();
    Attack { bytes: format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}").into(), ..Attack::default() }
}

/// Returns a correct head with this body.
pub(crate) fn list(body: &str) -> Attack {
    response("200 OK\r\ncontent-type: application/json", body)
}

/// Returns a watch with these lines.
pub(crate) fn watch(body: &str) -> Attack {
    Attack { is_watch: true, ..list(body) }
}

/// Returns `head` followed by `piece` forever.
pub(crate) fn endless(head: &str, piece: &str) -> Attack {
    let pause = Duration::from_millis(20);
    Attack { bytes: head.into(), endless: piece.into(), pause, ..Attack::default() }
}

/// The server. Its attack on requests for config maps can be changed at any time.
#[derive(Clone, Default)]
pub(crate) struct Server {
    attacks: Arc<Mutex<Vec<Attack>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn attack(&self, attacks: impl IntoIterator<Item = Attack>) {
        *self.attacks.lock() = attacks.into_iter().collect();
    }

    /// Returns the heads of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    pub(crate) fn connection(&self, settings: Settings) -> Connection {
        let server = self.clone();
        let speak_http2 = settings.prior_knowledge;
        let environment = LocalEnvironment::new(7, move |_, _| {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let server = server.clone();
            tokio::spawn(async move {
                // Any result is fine: the client closes connections with violations.
                drop(if speak_http2 { server.http2(theirs).await } else { server.http1(theirs).await });
            });
            let pipe: Box<dyn Socket> = Box::new(Pipe::new(ours, "hostile"));
            Box::pin(std::future::ready(Ok(pipe)))
        });
        let config = kube::Config::new("http://hostile:80".parse().expect("a URL"));
        Connection::builder(config).environment(Arc::new(environment)).settings(settings).build().expect("a connection")
    }

    async fn http1(&self, mut socket: DuplexStream) -> io::Result<()> {
        let mut head = Vec::new();
        loop {
            head.push(socket.read_u8().await?);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let request = String::from_utf8_lossy(&std::mem::take(&mut head)).into_owned();
            self.requests.lock().push(request.clone());
            // A streamed list is a watch request too.
            let watch = request.contains("watch=true");
            let attacks = self.attacks.lock().clone();
            let matches = |attack: &Attack| attack.is_watch == watch && request.contains(attack.required_text);
            match attacks.into_iter().find(|attack| request.contains("/configmaps") && matches(attack)) {
                Some(attack) => {
                    let close = attack.closes;
                    serve_attack(&mut socket, attack).await?;
                    if close {
                        return Ok(());
                    }
                }
                None if watch => serve_watch(&mut socket).await?,
                None => serve_list(&mut socket, &request).await?,
            }
        }
    }

    /// Sends endless CONTINUATION frames instead of a response.
    async fn http2(&self, mut socket: DuplexStream) -> io::Result<()> {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await?;
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        loop {
            let (kind, stream, content) = frame(&mut socket).await?;
            if kind == 6 {
                socket.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0], &content[..]].concat()).await?;
            }
            // Starts with the first request.
            if kind == 1 {
                let (mut reader, mut writer) = tokio::io::split(socket);
                // Without a reader, a full pipe would block the client before the attack has an effect.
                tokio::spawn(async move { while reader.read_u8().await.is_ok() {} });
                // `:status: 200`, followed by fields without an index: `x: aaa…`.
                writer.write_all(&[0, 0, 1, 1, 0]).await?;
                writer.write_all(&[&stream[..], &[0x88]].concat()).await?;
                let mut field = vec![0, 1, b'x', 126];
                field.extend([b'a'; 126]);
                let block = field.repeat(100);
                let mut next = vec![0, (block.len() >> 8) as u8, block.len() as u8, 9, 0];
                next.extend(stream);
                next.extend(block);
                loop {
                    writer.write_all(&next).await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }
}

/// Reads a frame and returns its type, the bytes of its stream number, and its payload.
async fn frame(socket: &mut DuplexStream) -> io::Result<(u8, [u8; 4], Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await?;
    let [high, middle, low, kind, _, stream @ ..] = head;
    let mut rest = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
    socket.read_exact(&mut rest).await?;
    Ok((kind, stream, rest))
}

async fn serve_attack(socket: &mut DuplexStream, attack: Attack) -> io::Result<()> {
    socket.write_all(&attack.bytes).await?;
    while !attack.endless.is_empty() {
        socket.write_all(&attack.endless).await?;
        tokio::time::sleep(attack.pause).await;
    }
    Ok(())
}

async fn serve_list(socket: &mut DuplexStream, request: &str) -> io::Result<()> {
    let kind = if request.contains("/configmaps") { "ConfigMap" } else { "Secret" };
    let items = ["a", "b"].map(|name| item(name, "default", name)).join(",");
    let body = format!(r#"{{"kind":"{kind}List","metadata":{{"resourceVersion":"10"}},"items":[{items}]}}"#);
    let Attack { bytes, .. } = list(&body);
    socket.write_all(&bytes).await
}

/// Serves a watch without events.
async fn serve_watch(socket: &mut DuplexStream) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    loop {
        socket.read_u8().await?;
    }
}

/// Returns an object of a list.
pub(crate) fn item(name: &str, namespace: &str, uid: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"5"}}}}"#)
}
