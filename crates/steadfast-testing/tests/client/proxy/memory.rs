//! The network in memory, in virtual time.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use steadfast::environment::Socket;
use steadfast_testing::TestError;
use steadfast_testing::proxy::{ConnectionEnd, Direction, FaultTransition, NetworkFaults};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::{bytes, end_of, exchange, read_exactly, read_to_end, read_within};

type DialFn = dyn Fn(String, u16) -> BoxFuture<'static, std::io::Result<Box<dyn Socket>>> + Send + Sync;

/// In-memory network, and the server ends of the connections to its numbered targets.
struct NetworkFixture {
    faults: NetworkFaults,
    dial: Arc<DialFn>,
    server_ends: Mutex<UnboundedReceiver<(usize, DuplexStream)>>,
}

impl NetworkFixture {
    fn new() -> Self {
        Self::with_faults(NetworkFaults::seeded(7))
    }

    fn with_faults(faults: NetworkFaults) -> Self {
        let (sender, served) = unbounded_channel();
        let dial = faults.dialer(move |target| {
            let sender = sender.clone();
            Box::pin(async move {
                let (client_end, server_end) = tokio::io::duplex(1 << 20);
                sender.send((target, server_end)).map_err(|_| std::io::Error::from(ErrorKind::ConnectionRefused))?;
                Ok(client_end)
            })
        });
        Self { faults, dial: Arc::new(dial), server_ends: Mutex::new(served) }
    }

    async fn client(&self) -> std::io::Result<Pin<Box<dyn Socket>>> {
        (self.dial)("server".to_owned(), 443).await.map(Box::into_pin)
    }

    async fn next_server_end(&self) -> Result<(usize, DuplexStream), TestError> {
        Ok(self.server_ends.lock().await.recv().await.ok_or("no further connection is dialled")?)
    }

    /// Opens a connection, and returns the client's end and the server's.
    async fn pair(&self) -> Result<(Pin<Box<dyn Socket>>, DuplexStream), TestError> {
        let client = self.client().await?;
        Ok((client, self.next_server_end().await?.1))
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_unchanged_and_are_counted() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    let start = Instant::now();
    exchange(&mut client, &mut server, 300_000, 700_001).await?;
    assert_eq!(start.elapsed(), Duration::ZERO, "no byte was delayed");
    assert_eq!(end_of(&network.faults, 0).await?, ConnectionEnd::Closed);
    let report = &network.faults.connections()[0];
    assert_eq!((report.to_server, report.to_client), (300_000, 700_001));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn client_receives_reset() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    server.write_all(b"before").await?;
    assert_eq!(read_exactly(&mut client, 6).await?, b"before");
    network.faults.reset();
    let error = client.read_u8().await.expect_err("the connection was reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = client.write_all(b"more").await.expect_err("the connection was reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(read_to_end(&mut server).await?.0, b"");
    assert_eq!(end_of(&network.faults, 0).await?, ConnectionEnd::Reset);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cut_passes_exact_number_of_bytes() -> Result<(), TestError> {
    let response = bytes(200_000);
    for after in [0, 1, 16_383, 16_384, 16_385, 65_536, 131_071, 199_999] {
        for truncate in [false, true] {
            let network = NetworkFixture::new();
            let (mut client, mut server) = network.pair().await?;
            if truncate {
                network.faults.truncate_after(after);
            } else {
                network.faults.reset_after(after, Direction::ToClient);
            }
            let serve_task = tokio::spawn({
                let response = response.clone();
                // The write may fail in the middle, after the client has closed the connection.
                async move { server.write_all(&response).await.is_ok() }
            });
            let (received, is_clean) = read_to_end(&mut client).await?;
            assert!(received == response[..after as usize], "{} bytes of {after}", received.len());
            assert_eq!(is_clean, truncate, "after {after}");
            drop(client);
            let expected = if truncate { ConnectionEnd::Truncated } else { ConnectionEnd::Reset };
            assert_eq!(end_of(&network.faults, 0).await?, expected);
            assert_eq!(network.faults.connections()[0].to_client, after);
            serve_task.await?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cut_counts_only_its_direction() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    network.faults.reset_after(4, Direction::ToServer);
    server.write_all(b"more than four").await?;
    assert_eq!(read_exactly(&mut client, 14).await?, b"more than four");
    client.write_all(b"request").await?;
    assert_eq!(read_to_end(&mut server).await?.0, b"requ");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn next_connection_can_be_cut_in_advance() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut first, mut first_server) = network.pair().await?;
    network.faults.next_connection().reset_after(2, Direction::ToClient);
    let (mut second, mut second_server) = network.pair().await?;
    let (mut third, mut third_server) = network.pair().await?;
    for served in [&mut first_server, &mut second_server, &mut third_server] {
        served.write_all(b"answer").await?;
    }
    assert_eq!(read_exactly(&mut first, 6).await?, b"answer");
    assert_eq!(read_to_end(&mut second).await?, (b"an".to_vec(), false));
    assert_eq!(read_exactly(&mut third, 6).await?, b"answer");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn black_hole_holds_bytes_silently() -> Result<(), TestError> {
    let hour = Duration::from_secs(3600);
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    network.faults.black_hole(Direction::ToClient, true);
    client.write_all(b"request").await?;
    assert_eq!(read_exactly(&mut server, 7).await?, b"request", "the other direction is open");
    server.write_all(b"answer").await?;
    server.shutdown().await?;
    assert!(read_within(&mut client, hour).await.is_none());
    network.faults.black_hole(Direction::ToClient, false);
    assert_eq!(read_to_end(&mut client).await?, (b"answer".to_vec(), true));

    network.faults.black_hole(Direction::Both, true);
    client.write_all(b"again").await?;
    client.shutdown().await?;
    assert!(read_within(&mut server, hour).await.is_none());
    network.faults.heal();
    assert_eq!(read_to_end(&mut server).await?, (b"again".to_vec(), true));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dial_into_black_hole_waits_until_healed() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    network.faults.black_hole(Direction::ToClient, true);
    assert!(timeout(Duration::from_secs(3600), network.client()).await.is_err());
    let mut dial = Box::pin(network.client());
    assert!(timeout(Duration::from_secs(1), &mut dial).await.is_err());
    network.faults.heal();
    let mut client = dial.await?;
    let (_, mut server) = network.next_server_end().await?;
    client.write_all(b"hello").await?;
    assert_eq!(read_exactly(&mut server, 5).await?, b"hello");
    assert_eq!(network.faults.connections().len(), 1, "a cancelled dial is not counted");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn frozen_network_accepts_bounded_bytes() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    network.faults.freeze(true);
    let mut client = timeout(Duration::from_secs(1), network.client()).await??;
    let sent = bytes(4 << 20);
    let send_task = tokio::spawn(async move {
        client.write_all(&sent).await?;
        client.shutdown().await?;
        std::io::Result::Ok((client, sent))
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!send_task.is_finished(), "the network must not accept all bytes");
    network.faults.freeze(false);
    let (_, mut server) = network.next_server_end().await?;
    let (received, is_clean) = read_to_end(&mut server).await?;
    let (mut client, sent) = send_task.await??;
    assert!(received == sent && is_clean, "{} bytes", received.len());

    network.faults.freeze(true);
    server.write_all(b"answer").await?;
    assert!(read_within(&mut client, Duration::from_secs(3600)).await.is_none());
    network.faults.freeze(false);
    assert_eq!(read_exactly(&mut client, 6).await?, b"answer");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn delay_is_exact_and_jitter_keeps_order() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    network.faults.delay(Duration::from_millis(250));
    let start = Instant::now();
    client.write_all(b"a").await?;
    read_exactly(&mut server, 1).await?;
    server.write_all(b"b").await?;
    read_exactly(&mut client, 1).await?;
    assert_eq!(start.elapsed(), Duration::from_millis(500), "the delay applies in both directions");

    network.faults.jitter(Duration::from_secs(1));
    let sent = bytes(2000);
    let start = Instant::now();
    let send_task = async {
        for piece in sent.chunks(20) {
            server.write_all(piece).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok::<_, TestError>(())
    };
    let (received, ()) = tokio::try_join!(read_exactly(&mut client, 2000), send_task)?;
    assert!(received == sent, "bytes were reordered");
    let elapsed = start.elapsed();
    assert!((Duration::from_millis(1250)..Duration::from_millis(2250)).contains(&elapsed), "{elapsed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn throttle_limits_bytes_per_second() -> Result<(), TestError> {
    for rate in [1, 1000, 100_000] {
        let network = NetworkFixture::new();
        let (mut client, mut server) = network.pair().await?;
        network.faults.throttle(Some(rate));
        let sent = bytes(rate as usize * 20);
        let start = Instant::now();
        let mut received = vec![0; sent.len()];
        tokio::try_join!(client.read_exact(&mut received), server.write_all(&sent))?;
        assert!(received == sent, "bytes differ");
        let elapsed = start.elapsed();
        assert!(
            (Duration::from_millis(18_900)..=Duration::from_millis(20_100)).contains(&elapsed),
            "{rate}: {elapsed:?}"
        );
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn idle_flow_is_dropped_permanently() -> Result<(), TestError> {
    let second = Duration::from_secs(1);
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    network.faults.drop_idle_after(Some(240 * second));
    for _ in 0..10 {
        tokio::time::sleep(239 * second).await;
        client.write_all(b"a").await?;
        assert_eq!(read_exactly(&mut server, 1).await?, b"a");
    }
    tokio::time::sleep(241 * second).await;
    client.write_all(b"b").await?;
    server.write_all(b"c").await?;
    network.faults.heal();
    assert!(read_within(&mut server, 3600 * second).await.is_none(), "the bytes must be lost");
    assert!(read_within(&mut client, 3600 * second).await.is_none(), "the client must not be notified");
    let drop_change = network.faults.changes().into_iter().find(|change| change.fault == "idle flow dropped");
    let drop_change = drop_change.ok_or("the drop is not recorded")?;
    assert_eq!((drop_change.at, drop_change.connection), ((2390 + 240) * second, Some(0)));

    let (mut another, mut another_server) = network.pair().await?;
    another.write_all(b"new").await?;
    assert_eq!(read_exactly(&mut another_server, 3).await?, b"new");
    drop((client, server));
    assert_eq!(end_of(&network.faults, 0).await?, ConnectionEnd::Dropped);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn half_close_keeps_other_direction() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    server.write_all(b"before").await?;
    assert_eq!(read_exactly(&mut client, 6).await?, b"before");
    network.faults.half_close(Direction::ToClient);
    assert_eq!(read_to_end(&mut client).await?, (Vec::new(), true));
    server.write_all(&bytes(3 << 20)).await?;
    client.write_all(b"after").await?;
    client.shutdown().await?;
    assert_eq!(read_to_end(&mut server).await?, (b"after".to_vec(), true));
    drop(server);
    assert_eq!(end_of(&network.faults, 0).await?, ConnectionEnd::Closed);
    assert_eq!(network.faults.connections()[0].to_client, 6);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn connections_are_rejected_closed_and_redirected() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut client, mut server) = network.pair().await?;
    network.faults.refuse(true);
    assert_eq!(network.client().await.err().ok_or("the connection was admitted")?.kind(), ErrorKind::ConnectionRefused);
    client.write_all(b"open").await?;
    assert_eq!(read_exactly(&mut server, 4).await?, b"open", "open connections must stay open");
    network.faults.refuse(false);

    network.faults.accept_and_close(true);
    let mut closed_client = network.client().await?;
    assert_eq!(read_to_end(&mut closed_client).await?, (Vec::new(), true));
    network.faults.accept_and_close(false);

    network.faults.send_to(3);
    let _another = network.client().await?;
    assert_eq!(network.next_server_end().await?.0, 3);

    network.faults.cut();
    assert!(!read_to_end(&mut client).await?.1, "the connection was reset");
    assert!(network.client().await.is_err());
    network.faults.heal();
    network.client().await?;
    let reports = network.faults.connections();
    let ends: Vec<_> = reports.iter().map(|one| (one.target, one.ended.map(|(_, how)| how))).collect();
    let expected = [
        (0, Some(ConnectionEnd::Reset)),
        (0, Some(ConnectionEnd::TurnedAway)),
        (3, Some(ConnectionEnd::Reset)),
        (3, None),
    ];
    assert_eq!(ends, expected);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_is_reported() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    network.server_ends.lock().await.close();
    let error = network.client().await.err().ok_or("the connection was admitted")?;
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(end_of(&network.faults, 0).await?, ConnectionEnd::Unreachable);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn fault_of_one_connection_affects_no_other() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let (mut first, mut first_server) = network.pair().await?;
    let (mut second, mut second_server) = network.pair().await?;
    network.faults.connection(0).black_hole(Direction::Both, true);
    network.faults.connection(1).delay(Duration::from_secs(1));
    first.write_all(b"a").await?;
    second.write_all(b"b").await?;
    let start = Instant::now();
    assert_eq!(read_exactly(&mut second_server, 1).await?, b"b");
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert!(read_within(&mut first_server, Duration::from_secs(60)).await.is_none());
    network.faults.connection(1).reset();
    assert!(!read_to_end(&mut second).await?.1);
    network.faults.connection(0).heal();
    assert_eq!(read_exactly(&mut first_server, 1).await?, b"a");
    // A fault of an ended connection has no effect and is not an error.
    network.faults.connection(1).black_hole(Direction::Both, true);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn switchings_are_recorded_and_notified() -> Result<(), TestError> {
    let network = NetworkFixture::new();
    let notified = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let listener = notified.clone();
    network.faults.on_change(move |change| listener.lock().push(change.clone()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    network.faults.black_hole(Direction::ToServer, true);
    tokio::time::sleep(Duration::from_secs(3)).await;
    network.faults.connection(4).reset_after(10, Direction::Both);
    network.faults.heal();
    let all = network.faults.changes();
    let words: Vec<_> =
        all.iter().map(|one| (one.at.as_secs(), one.fault.as_str(), one.connection, one.transition)).collect();
    let expected = [
        (2, "black_hole(ToServer)", None, FaultTransition::On),
        (5, "reset_after(10, Both)", Some(4), FaultTransition::Once),
        (5, "heal", None, FaultTransition::Off),
    ];
    assert_eq!(words, expected);
    assert_eq!(*notified.lock(), all);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_have_equal_jitter() -> Result<(), TestError> {
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let network = NetworkFixture::with_faults(NetworkFaults::seeded(seed));
        let (mut client, mut server) = network.pair().await?;
        network.faults.jitter(Duration::from_secs(1));
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..20 {
            client.write_all(b"a").await?;
            read_exactly(&mut server, 1).await?;
            times.push(start.elapsed());
        }
        runs.push(times);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
    Ok(())
}
