//! The test network over TCP: only a real kernel shows which errors and resets the client receives.

use std::io::ErrorKind;
use std::time::Duration;

use steadfast_testing::TestError;
use steadfast_testing::proxy::{ConnectionEnd, Direction, FaultProxy};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{bytes, end_of, exchange, next, read_within, rest};

/// Long enough for pending bytes to arrive.
const SETTLE_TIME: Duration = Duration::from_millis(300);

struct World {
    server: TcpListener,
    proxy: FaultProxy,
}

impl World {
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
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    exchange(&mut client, &mut server, 3 << 20, 5 << 20).await?;
    assert_eq!(end_of(world.proxy.faults(), 0).await?, ConnectionEnd::Closed);
    Ok(())
}

#[tokio::test]
async fn reset_sends_rst_to_both_ends() -> Result<(), TestError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    client.write_all(b"hello").await?;
    next(&mut server, 5).await?;
    world.proxy.faults().reset();
    for side in [&mut client, &mut server] {
        let read = read_within(side, super::EVENT_TIMEOUT).await.ok_or("no bytes and no reset arrived")?;
        assert_eq!(read.expect_err("the connection was reset").kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(end_of(world.proxy.faults(), 0).await?, ConnectionEnd::Reset);
    Ok(())
}

#[tokio::test]
async fn cut_passes_exact_bytes_over_tcp() -> Result<(), TestError> {
    let response = bytes(100_000);
    for after in [0, 1, 777, 40_000] {
        for truncate in [false, true] {
            let world = World::new().await?;
            let (mut client, mut server) = world.pair().await?;
            // The server closes with these bytes unread, so its kernel sends a reset. The proxy must not pass this
            // reset to the client.
            client.write_all(b"request").await?;
            if truncate {
                world.proxy.faults().truncate_after(after);
            } else {
                world.proxy.faults().reset_after(after, Direction::ToClient);
            }
            let serving = tokio::spawn({
                let response = response.clone();
                async move { server.write_all(&response).await.is_ok() }
            });
            let (received, cleanly) = rest(&mut client).await?;
            assert!(received == response[..after as usize], "{} bytes of {after}", received.len());
            assert_eq!(cleanly, truncate, "after {after}");
            serving.await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn black_hole_keeps_sockets_open() -> Result<(), TestError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    client.write_all(b"before").await?;
    next(&mut server, 6).await?;
    let faults = world.proxy.faults();
    faults.black_hole(Direction::Both, true);
    client.write_all(b"request").await?;
    server.write_all(b"answer").await?;
    // The kernel accepts this connection, but no byte arrives on it.
    let mut another = world.client().await?;
    another.write_all(b"hello").await?;
    assert!(read_within(&mut server, SETTLE_TIME).await.is_none());
    assert!(read_within(&mut client, SETTLE_TIME).await.is_none());
    assert!(tokio::time::timeout(SETTLE_TIME, world.server.accept()).await.is_err());
    faults.heal();
    assert_eq!(next(&mut server, 7).await?, b"request");
    assert_eq!(next(&mut client, 6).await?, b"answer");
    let (mut of_another, _) = world.server.accept().await?;
    assert_eq!(next(&mut of_another, 5).await?, b"hello");
    Ok(())
}

#[tokio::test]
async fn closed_port_is_reopened_with_same_number() -> Result<(), TestError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    for _ in 0..3 {
        world.proxy.faults().refuse(true);
        assert_eq!(
            world.client().await.err().ok_or("the connection was admitted")?.kind(),
            ErrorKind::ConnectionRefused
        );
        client.write_all(b"open").await?;
        assert_eq!(next(&mut server, 4).await?, b"open", "open connections must stay open");
        world.proxy.faults().refuse(false);
        world.pair().await?;
    }
    Ok(())
}

#[tokio::test]
async fn turned_away_client_receives_end() -> Result<(), TestError> {
    let world = World::new().await?;
    world.proxy.faults().accept_and_close(true);
    let mut client = world.client().await?;
    assert_eq!(rest(&mut client).await?, (Vec::new(), true));
    assert_eq!(end_of(world.proxy.faults(), 0).await?, ConnectionEnd::TurnedAway);
    world.proxy.faults().heal();
    world.pair().await?;
    Ok(())
}

#[tokio::test]
async fn dead_target_resets_new_connections() -> Result<(), TestError> {
    let first = TcpListener::bind("127.0.0.1:0").await?;
    let second = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = FaultProxy::start([Some(first.local_addr()?), None, Some(second.local_addr()?)])?;
    let mut stays = TcpStream::connect(proxy.address()).await?;
    let (mut of_first, _) = first.accept().await?;
    proxy.faults().send_to(1);
    let _moved = TcpStream::connect(proxy.address()).await?;
    second.accept().await?;
    stays.write_all(b"still here").await?;
    assert_eq!(next(&mut of_first, 10).await?, b"still here");

    drop(second);
    let mut unlucky = TcpStream::connect(proxy.address()).await?;
    assert!(!rest(&mut unlucky).await?.1, "the connection was reset");
    assert_eq!(end_of(proxy.faults(), 2).await?, ConnectionEnd::Unreachable);
    Ok(())
}

#[tokio::test]
async fn dropped_proxy_closes_connections_and_port() -> Result<(), TestError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    let (address, faults) = (world.proxy.address(), world.proxy.faults().clone());
    drop(world.proxy);
    assert_eq!(rest(&mut client).await?.0, b"");
    assert_eq!(rest(&mut server).await?.0, b"");
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
    let world = World::new().await?;
    let (mut client, server) = world.pair().await?;
    client.write_all(b"unread").await?;
    assert_eq!(server.peek(&mut [0; 16]).await?, 6);
    // A close with unread bytes makes the kernel send a reset.
    drop(server);
    assert!(!rest(&mut client).await?.1, "the connection was reset");
    assert_eq!(end_of(world.proxy.faults(), 0).await?, ConnectionEnd::Broken);
    Ok(())
}
