//! The network in memory.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use steadfast::environment::Socket;
use steadfast::environment::local::Pipe;
use tokio::io::{AsyncRead, AsyncWrite};

use super::end::{Resettable, pipe};
use super::faults::NetworkFaults;
use super::network::Network;
use super::report::Ended;

impl NetworkFaults {
    /// What opens sockets through this network, for [`Local`](steadfast::environment::local::Local): `dial` opens a
    /// stream to the target of that number.
    ///
    /// What it returns must run on a tokio runtime, in whose time the network's faults happen.
    pub fn dialer<D, S>(
        &self,
        dial: D,
    ) -> impl Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> + Send + Sync + 'static
    where
        D: Fn(usize) -> BoxFuture<'static, io::Result<S>> + Send + Sync + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (network, dial) = (self.network.clone(), Arc::new(dial));
        move |_, _| Box::pin(connect(network.clone(), dial.clone()))
    }
}

async fn connect<D, S>(network: Arc<Network>, dial: Arc<D>) -> io::Result<Box<dyn Socket>>
where
    D: Fn(usize) -> BoxFuture<'static, io::Result<S>> + Send + Sync + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let open = network.admit_when_passable().await?;
    let (client, near) = pipe();
    let socket = Box::new(Pipe::new(client, format!("target {}", open.target)));
    if network.turns_away() {
        open.end(Ended::TurnedAway);
        return Ok(socket);
    }
    let condition = open.link.condition();
    let target = open.target;
    if condition.frozen {
        // What is in the middle has accepted it, and goes on when it thaws.
        let link = open.link.clone();
        let dial = async move {
            link.until_passable().await;
            dial(target).await.map(Resettable::new)
        };
        tokio::spawn(open.carry(near, dial));
        return Ok(socket);
    }
    if !condition.delay.is_zero() {
        // There and back.
        tokio::time::sleep(2 * condition.delay).await;
    }
    match dial(target).await {
        Ok(far) => {
            tokio::spawn(open.carry(near, async { Ok(Resettable::new(far)) }));
            Ok(socket)
        }
        Err(error) => {
            open.end(Ended::Unreachable);
            Err(error)
        }
    }
}
