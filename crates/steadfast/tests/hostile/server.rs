//! A server of raw bytes in memory: right about everything but what it is told to be wrong about.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Socket;
use steadfast::environment::local::{Local, Pipe};
use steadfast::transport::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// What is sent in place of a right answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attack {
    /// Whether it answers watches, rather than lists.
    pub(crate) watch: bool,
    /// What a request has to have in its head to be answered so.
    pub(crate) only: &'static str,
    /// What is sent first.
    pub(crate) bytes: Vec<u8>,
    /// What is sent after it, over and over, until the client closes.
    pub(crate) endless: Vec<u8>,
    /// How long it waits between two of them.
    pub(crate) pause: Duration,
    /// Whether it closes afterwards, rather than to wait for the next request.
    pub(crate) close: bool,
}

/// An answer to a list, or a watch's, of this head and body.
pub(crate) fn answer(head: &str, body: &str) -> Attack {
    let length = body.len();
    Attack { bytes: format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}").into(), ..Attack::default() }
}

/// A good head and this body.
pub(crate) fn list(body: &str) -> Attack {
    answer("200 OK\r\ncontent-type: application/json", body)
}

/// A watch that has these lines.
pub(crate) fn watch(body: &str) -> Attack {
    Attack { watch: true, ..list(body) }
}

/// `head`, then `piece` for ever.
pub(crate) fn endless(head: &str, piece: &str) -> Attack {
    let pause = Duration::from_millis(20);
    Attack { bytes: head.into(), endless: piece.into(), pause, ..Attack::default() }
}

/// The server; what it does to requests for config maps can be changed at any time.
#[derive(Clone, Default)]
pub(crate) struct Server {
    attacks: Arc<Mutex<Vec<Attack>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn attack(&self, attacks: impl IntoIterator<Item = Attack>) {
        *self.attacks.lock().unwrap_or_else(PoisonError::into_inner) = attacks.into_iter().collect();
    }

    /// The heads of the requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn connection(&self, settings: Settings) -> Connection {
        let server = self.clone();
        let speak_http2 = settings.prior_knowledge;
        let environment = Local::new(7, move |_, _| {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let server = server.clone();
            tokio::spawn(async move {
                // Whatever it ends with: the client closes what it dislikes.
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
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
            let watch = request.contains("watch=true");
            let attacks = self.attacks.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let fits = |attack: &Attack| attack.watch == watch && request.contains(attack.only);
            match attacks.into_iter().find(|attack| request.contains("/configmaps") && fits(attack)) {
                Some(attack) => {
                    let close = attack.close;
                    wrong(&mut socket, attack).await?;
                    if close {
                        return Ok(());
                    }
                }
                None if watch => right_watch(&mut socket).await?,
                None => right_list(&mut socket, &request).await?,
            }
        }
    }

    /// Endless CONTINUATION frames in place of any answer.
    async fn http2(&self, mut socket: DuplexStream) -> io::Result<()> {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await?;
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        loop {
            let (kind, stream, content) = frame(&mut socket).await?;
            if kind == 6 {
                socket.write_all(&[&[0, 0, 8, 6, 1, 0, 0, 0, 0], &content[..]].concat()).await?;
            }
            // Only once it is asked for something.
            if kind == 1 {
                let (mut reader, mut writer) = tokio::io::split(socket);
                tokio::spawn(async move { while reader.read_u8().await.is_ok() {} });
                // `:status: 200`, and then fields without an index: `x: aaa…`.
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

/// Reads a frame; returns its type, the bytes of its stream's number, and its content.
async fn frame(socket: &mut DuplexStream) -> io::Result<(u8, [u8; 4], Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await?;
    let [high, middle, low, kind, _, stream @ ..] = head;
    let mut rest = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
    socket.read_exact(&mut rest).await?;
    Ok((kind, stream, rest))
}

async fn wrong(socket: &mut DuplexStream, attack: Attack) -> io::Result<()> {
    socket.write_all(&attack.bytes).await?;
    while !attack.endless.is_empty() {
        socket.write_all(&attack.endless).await?;
        tokio::time::sleep(attack.pause).await;
    }
    Ok(())
}

async fn right_list(socket: &mut DuplexStream, request: &str) -> io::Result<()> {
    let kind = if request.contains("/configmaps") { "ConfigMap" } else { "Secret" };
    let items = ["a", "b"].map(|name| item(name, "default", name)).join(",");
    let body = format!(r#"{{"kind":"{kind}List","metadata":{{"resourceVersion":"10"}},"items":[{items}]}}"#);
    let Attack { bytes, .. } = list(&body);
    socket.write_all(&bytes).await
}

/// A watch on which nothing happens.
async fn right_watch(socket: &mut DuplexStream) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    loop {
        socket.read_u8().await?;
    }
}

/// An object of a list.
pub(crate) fn item(name: &str, namespace: &str, uid: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"5"}}}}"#)
}
