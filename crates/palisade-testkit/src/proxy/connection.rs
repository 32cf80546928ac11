use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::try_join;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::pipe::{Dice, Forwarded, Pipe};
use super::weather::{Direction, Sky};
use super::{Shared, Weather};

/// Carries one client's connection for as long as it lasts.
pub(super) async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let _counted = Counted::new(&shared);
    let born = *shared.sky.borrow();
    let server = tokio::select! {
        biased;
        () = cut(&shared, born.cuts) => None,
        server = dial(&shared, born.number) => server.ok(),
    };
    let Some(server) = server else {
        // What a port that nobody listens to says.
        reset(&client);
        return;
    };
    match exchange(client, server, &shared, born).await {
        (End::Closed, ..) => {}
        (End::Cut, client, server) => {
            reset(&client);
            reset(&server);
        }
        // The server gets all that was forwarded, and an end; only the client is cut off.
        (End::Broken, client, _server) => reset(&client),
    }
}

enum End {
    /// Both sides said that they are done.
    Closed,
    Cut,
    /// One side is gone, or the answer is to be lost.
    Broken,
}

async fn exchange(
    mut client: TcpStream,
    mut server: TcpStream,
    shared: &Arc<Shared>,
    born: Sky,
) -> (End, TcpStream, TcpStream) {
    // Without it small requests wait for each other, and a delay would be more than was asked for.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let forwarded = watch::Sender::new(Forwarded::default());
    let seed = shared.seed.fetch_add(2, Ordering::Relaxed);
    let pipe = |direction, seed| Pipe::new(shared, direction, born.number, &forwarded, Dice::new(seed));
    let both = try_join(
        pipe(Direction::ToServer, seed).run(from_client, to_server),
        pipe(Direction::ToClient, seed + 1).run(from_server, to_client),
    );
    let end = tokio::select! {
        biased;
        () = cut(shared, born.cuts) => End::Cut,
        ended = both => if ended.is_ok() { End::Closed } else { End::Broken },
    };
    (end, client, server)
}

/// Completes once connections of `cuts` are to be reset.
async fn cut(shared: &Shared, cuts: u64) {
    let mut sky = shared.sky.subscribe();
    // An error means that the proxy is gone, and this task with it.
    let _ = sky.wait_for(|sky| sky.weather == Weather::Cut || sky.cuts != cuts).await;
}

/// Connects to the server, once requests pass.
async fn dial(shared: &Shared, born: u64) -> io::Result<TcpStream> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut sky = shared.sky.subscribe();
    let _ = sky.wait_for(|sky| !sky.is_silent(Direction::ToServer, born)).await;
    let begun = Instant::now();
    loop {
        let target = *shared.target.lock();
        match TcpStream::connect(target).await {
            Err(_) if begun.elapsed() < shared.patience => tokio::time::sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

/// Has it closed with RST instead of FIN.
fn reset(stream: &TcpStream) {
    // If it fails the stream is closed in the ordinary way.
    let _ = stream.set_zero_linger();
}

/// Counts a connection for as long as it lives.
struct Counted<'a>(&'a Shared);

impl<'a> Counted<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
