//! Over TCP, where only a kernel can show what a client sees.

use std::io::ErrorKind;
use std::time::Duration;

use steadfast_testing::WorldError;
use steadfast_testing::proxy::{Direction, Ended, FaultProxy};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{bytes, end_of, exchange, next, rest, said_within};

/// Long enough that what could have come would have.
const A_WHILE: Duration = Duration::from_millis(300);

struct World {
    server: TcpListener,
    proxy: FaultProxy,
}

impl World {
    async fn new() -> Result<Self, WorldError> {
        let server = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = FaultProxy::start([server.local_addr()?])?;
        Ok(Self { server, proxy })
    }

    async fn client(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.proxy.address()).await
    }

    /// A connection: the client's end and the server's.
    async fn pair(&self) -> Result<(TcpStream, TcpStream), WorldError> {
        let client = self.client().await?;
        Ok((client, self.server.accept().await?.0))
    }
}

#[tokio::test]
async fn bytes_pass_both_ways_unchanged_until_both_have_ended() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    exchange(&mut client, &mut server, 3 << 20, 5 << 20).await?;
    assert_eq!(end_of(world.proxy.faults(), 0).await?, Ended::Closed);
    Ok(())
}

#[tokio::test]
async fn a_reset_is_an_rst_at_both_ends() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    client.write_all(b"hello").await?;
    next(&mut server, 5).await?;
    world.proxy.faults().reset();
    for side in [&mut client, &mut server] {
        let said = said_within(side, super::SOON).await.ok_or("nothing came")?;
        assert_eq!(said.expect_err("it was reset").kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(end_of(world.proxy.faults(), 0).await?, Ended::Reset);
    Ok(())
}

#[tokio::test]
async fn a_cut_lets_exactly_so_many_bytes_through_and_ends_by_rst_or_fin() -> Result<(), WorldError> {
    let answer = bytes(100_000);
    for after in [0, 1, 777, 40_000] {
        for truncate in [false, true] {
            let world = World::new().await?;
            let (mut client, mut server) = world.pair().await?;
            // Unread by the server, as a request may be: its close must not become a reset for the client.
            client.write_all(b"request").await?;
            if truncate {
                world.proxy.faults().truncate_after(after);
            } else {
                world.proxy.faults().reset_after(after, Direction::ToClient);
            }
            let serving = tokio::spawn({
                let answer = answer.clone();
                async move { server.write_all(&answer).await.is_ok() }
            });
            let (heard, cleanly) = rest(&mut client).await?;
            assert!(heard == answer[..after as usize], "{} bytes of {after}", heard.len());
            assert_eq!(cleanly, truncate, "after {after}");
            serving.await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_black_hole_keeps_sockets_open_and_silent_and_gives_back_what_it_held() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    client.write_all(b"before").await?;
    next(&mut server, 6).await?;
    let faults = world.proxy.faults();
    faults.black_hole(Direction::Both, true);
    client.write_all(b"request").await?;
    server.write_all(b"answer").await?;
    // One that is opened now is opened by the kernel, and nothing follows.
    let mut another = world.client().await?;
    another.write_all(b"hello").await?;
    assert!(said_within(&mut server, A_WHILE).await.is_none());
    assert!(said_within(&mut client, A_WHILE).await.is_none());
    assert!(tokio::time::timeout(A_WHILE, world.server.accept()).await.is_err());
    faults.heal();
    assert_eq!(next(&mut server, 7).await?, b"request");
    assert_eq!(next(&mut client, 6).await?, b"answer");
    let (mut of_another, _) = world.server.accept().await?;
    assert_eq!(next(&mut of_another, 5).await?, b"hello");
    Ok(())
}

#[tokio::test]
async fn a_refused_port_is_refused_by_the_kernel_and_the_same_one_afterwards() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    for _ in 0..3 {
        world.proxy.faults().refuse(true);
        assert_eq!(world.client().await.err().ok_or("it was let in")?.kind(), ErrorKind::ConnectionRefused);
        client.write_all(b"open").await?;
        assert_eq!(next(&mut server, 4).await?, b"open", "open ones stay");
        world.proxy.faults().refuse(false);
        world.pair().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_is_turned_away_gets_the_end() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.proxy.faults().accept_and_close(true);
    let mut client = world.client().await?;
    assert_eq!(rest(&mut client).await?, (Vec::new(), true));
    assert_eq!(end_of(world.proxy.faults(), 0).await?, Ended::TurnedAway);
    world.proxy.faults().heal();
    world.pair().await?;
    Ok(())
}

#[tokio::test]
async fn new_connections_go_to_the_chosen_target_and_a_dead_one_is_told_by_a_reset() -> Result<(), WorldError> {
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
    assert!(!rest(&mut unlucky).await?.1, "it was reset");
    assert_eq!(end_of(proxy.faults(), 2).await?, Ended::Unreachable);
    Ok(())
}

#[tokio::test]
async fn a_proxy_that_is_dropped_breaks_off_its_connections_and_frees_its_port() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, mut server) = world.pair().await?;
    let (address, faults) = (world.proxy.address(), world.proxy.faults().clone());
    drop(world.proxy);
    assert_eq!(rest(&mut client).await?.0, b"");
    assert_eq!(rest(&mut server).await?.0, b"");
    assert_eq!(end_of(&faults, 0).await?, Ended::Broken);
    drop(faults);
    assert_eq!(TcpStream::connect(address).await.err().ok_or("somebody listens")?.kind(), ErrorKind::ConnectionRefused);
    Ok(())
}

#[tokio::test]
async fn a_server_that_breaks_off_is_told_to_the_client_as_a_reset() -> Result<(), WorldError> {
    let world = World::new().await?;
    let (mut client, server) = world.pair().await?;
    client.write_all(b"unread").await?;
    assert_eq!(server.peek(&mut [0; 16]).await?, 6);
    // Closed with bytes unread: the kernel sends a reset.
    drop(server);
    assert!(!rest(&mut client).await?.1, "it was broken off");
    assert_eq!(end_of(world.proxy.faults(), 0).await?, Ended::Broken);
    Ok(())
}
