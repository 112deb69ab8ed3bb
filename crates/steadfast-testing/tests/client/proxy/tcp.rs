//! The test network over TCP: only a real kernel shows which errors and resets the client receives.

use std::io::ErrorKind;
use std::time::Duration;

use steadfast_testing::TestError;
use steadfast_testing::proxy::{ConnectionEnd, Direction, FaultProxy};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{bytes, end_of, exchange, read_exactly, read_to_end, read_within};

/// Long enough for pending bytes to arrive.
const SETTLE_TIME: Duration = Duration::from_millis(300);

struct ProxyFixture {
    server: TcpListener,
    proxy: FaultProxy,
}

impl ProxyFixture {
    async fn new() -> Result<Self, TestError> {
        let server = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = FaultProxy::start([server.local_addr()?])?;
        Ok(Self { server, proxy })
    }

    async fn client(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.proxy.address()).await
    }

    /// Opens a connection, and returns the client's end and the server's.
    async fn pair(&self) -> Result<(TcpStream, TcpStream), TestError> {
        let client = self.client().await?;
        Ok((client, self.server.accept().await?.0))
    }
}

#[tokio::test]
async fn bytes_pass_unchanged_until_both_ends_close() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, mut server) = fixture.pair().await?;
    exchange(&mut client, &mut server, 3 << 20, 5 << 20).await?;
    assert_eq!(end_of(fixture.proxy.faults(), 0).await?, ConnectionEnd::Closed);
    Ok(())
}

#[tokio::test]
async fn reset_sends_rst_to_both_ends() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, mut server) = fixture.pair().await?;
    client.write_all(b"hello").await?;
    read_exactly(&mut server, 5).await?;
    fixture.proxy.faults().reset();
    for side in [&mut client, &mut server] {
        let read = read_within(side, super::EVENT_TIMEOUT).await.ok_or("no bytes and no reset arrived")?;
        assert_eq!(read.expect_err("the connection was reset").kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(end_of(fixture.proxy.faults(), 0).await?, ConnectionEnd::Reset);
    Ok(())
}

#[tokio::test]
async fn cut_passes_exact_bytes_over_tcp() -> Result<(), TestError> {
    let response = bytes(100_000);
    for after in [0, 1, 777, 40_000] {
        for truncate in [false, true] {
            let fixture = ProxyFixture::new().await?;
            let (mut client, mut server) = fixture.pair().await?;
            // The server closes with these bytes unread, so its kernel sends a reset. The proxy must not pass this
            // reset to the client.
            client.write_all(b"request").await?;
            if truncate {
                fixture.proxy.faults().truncate_after(after);
            } else {
                fixture.proxy.faults().reset_after(after, Direction::ToClient);
            }
            let serve_task = tokio::spawn({
                let response = response.clone();
                async move { server.write_all(&response).await.is_ok() }
            });
            let (received, is_clean) = read_to_end(&mut client).await?;
            assert!(received == response[..after as usize], "{} bytes of {after}", received.len());
            assert_eq!(is_clean, truncate, "after {after}");
            serve_task.await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn black_hole_keeps_sockets_open() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, mut server) = fixture.pair().await?;
    client.write_all(b"before").await?;
    read_exactly(&mut server, 6).await?;
    let faults = fixture.proxy.faults();
    faults.black_hole(Direction::Both, true);
    client.write_all(b"request").await?;
    server.write_all(b"answer").await?;
    // The kernel accepts this connection, but no byte arrives on it.
    let mut another = fixture.client().await?;
    another.write_all(b"hello").await?;
    assert!(read_within(&mut server, SETTLE_TIME).await.is_none());
    assert!(read_within(&mut client, SETTLE_TIME).await.is_none());
    assert!(tokio::time::timeout(SETTLE_TIME, fixture.server.accept()).await.is_err());
    faults.heal();
    assert_eq!(read_exactly(&mut server, 7).await?, b"request");
    assert_eq!(read_exactly(&mut client, 6).await?, b"answer");
    let (mut of_another, _) = fixture.server.accept().await?;
    assert_eq!(read_exactly(&mut of_another, 5).await?, b"hello");
    Ok(())
}

#[tokio::test]
async fn closed_port_is_reopened_with_same_number() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, mut server) = fixture.pair().await?;
    for _ in 0..3 {
        fixture.proxy.faults().refuse(true);
        assert_eq!(
            fixture.client().await.err().ok_or("the connection was admitted")?.kind(),
            ErrorKind::ConnectionRefused
        );
        client.write_all(b"open").await?;
        assert_eq!(read_exactly(&mut server, 4).await?, b"open", "open connections must stay open");
        fixture.proxy.faults().refuse(false);
        fixture.pair().await?;
    }
    Ok(())
}

#[tokio::test]
async fn turned_away_client_receives_end() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    fixture.proxy.faults().accept_and_close(true);
    let mut client = fixture.client().await?;
    assert_eq!(read_to_end(&mut client).await?, (Vec::new(), true));
    assert_eq!(end_of(fixture.proxy.faults(), 0).await?, ConnectionEnd::TurnedAway);
    fixture.proxy.faults().heal();
    fixture.pair().await?;
    Ok(())
}

#[tokio::test]
async fn dead_target_resets_new_connections() -> Result<(), TestError> {
    let first = TcpListener::bind("127.0.0.1:0").await?;
    let second = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = FaultProxy::start([Some(first.local_addr()?), None, Some(second.local_addr()?)])?;
    let mut stays = TcpStream::connect(proxy.address()).await?;
    let (mut first_server, _) = first.accept().await?;
    proxy.faults().send_to(1);
    let _moved = TcpStream::connect(proxy.address()).await?;
    second.accept().await?;
    stays.write_all(b"still here").await?;
    assert_eq!(read_exactly(&mut first_server, 10).await?, b"still here");

    drop(second);
    let mut unlucky = TcpStream::connect(proxy.address()).await?;
    assert!(!read_to_end(&mut unlucky).await?.1, "the connection was reset");
    assert_eq!(end_of(proxy.faults(), 2).await?, ConnectionEnd::Unreachable);
    Ok(())
}

#[tokio::test]
async fn dropped_proxy_closes_connections_and_port() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, mut server) = fixture.pair().await?;
    let (address, faults) = (fixture.proxy.address(), fixture.proxy.faults().clone());
    drop(fixture.proxy);
    assert_eq!(read_to_end(&mut client).await?.0, b"");
    assert_eq!(read_to_end(&mut server).await?.0, b"");
    assert_eq!(end_of(&faults, 0).await?, ConnectionEnd::Broken);
    drop(faults);
    assert_eq!(
        TcpStream::connect(address).await.err().ok_or("the port is still open")?.kind(),
        ErrorKind::ConnectionRefused
    );
    Ok(())
}

#[tokio::test]
async fn server_reset_reaches_client() -> Result<(), TestError> {
    let fixture = ProxyFixture::new().await?;
    let (mut client, server) = fixture.pair().await?;
    client.write_all(b"unread").await?;
    assert_eq!(server.peek(&mut [0; 16]).await?, 6);
    // A close with unread bytes makes the kernel send a reset.
    drop(server);
    assert!(!read_to_end(&mut client).await?.1, "the connection was reset");
    assert_eq!(end_of(fixture.proxy.faults(), 0).await?, ConnectionEnd::Broken);
    Ok(())
}
