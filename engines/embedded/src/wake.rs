use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_core::{ClaimId, GoneReason, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::error::of_io;
use crate::session::{SessionId, Sessions};

/// Something that one session must tell another, once it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) session: SessionId,
    pub(crate) claim: ClaimId,
    pub(crate) news: News,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The claim may have come in or ended, or must watch someone else now.
    Look,
    /// The claim held its resource and was ended.
    Gone(GoneReason),
}

/// What came of telling another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It will see it: in the message, or because so many lie before it that it looks at all.
    Yes,
    /// Nobody listens there any more: the process has ended, or at least its engine.
    NobodyThere,
    /// It could not be told, which says nothing about whether it lives.
    Unknown,
}

/// A message as it travels: the kind, then the claim's id. Only a hint; rows are the truth.
pub(crate) type Message = [u8; 17];

pub(crate) const LOOK: u8 = 1;
pub(crate) const GONE: u8 = 2;

pub(crate) fn decode(message: &[u8]) -> Option<(u8, ClaimId)> {
    let message: &Message = message.try_into().ok()?;
    let (kind, id) = message.split_first()?;
    Some((*kind, ClaimId::from_bytes(id.try_into().ok()?)))
}

fn encode(wake: &Wake) -> Message {
    let mut message = [0; 17];
    message[0] = match wake.news {
        News::Look => LOOK,
        News::Gone(_) => GONE,
    };
    message[1..].copy_from_slice(wake.claim.as_bytes());
    message
}

/// Sends messages to other sessions.
#[derive(Debug)]
pub(crate) struct Post {
    socket: UnixDatagram,
    paths: SocketPaths,
}

impl Post {
    pub(crate) fn new(paths: SocketPaths) -> Result<Self> {
        let socket = sender().map_err(|problem| of_io(problem, "make a socket for", &paths.sessions))?;
        Ok(Self { socket, paths })
    }

    pub(crate) fn tell(&self, wake: &Wake) -> Told {
        const TRIES: usize = 3;
        let (message, path) = (encode(wake), self.paths.of(wake.session));
        let mut told = self.send(&message, &path);
        for _ in 1..TRIES {
            if told.is_ok() {
                break;
            }
            told = self.send(&message, &path);
        }
        told.unwrap_or_else(|problem| {
            tracing::warn!(%problem, session = ?wake.session, "could not tell another process that something changed; it finds out by itself within a TTL");
            Told::Unknown
        })
    }

    fn send(&self, message: &Message, path: &Path) -> io::Result<Told> {
        let mut sent = self.socket.send_to(message, path);
        if is_full(&sent) {
            // Either the receiver has more than it can hold, and looks at everything, or our own
            // buffer is full of what stopped processes do not read. A fresh socket tells.
            sent = sender().and_then(|socket| socket.send_to(message, path));
        }
        let Err(problem) = sent else { return Ok(Told::Yes) };
        match Errno::from_io_error(&problem) {
            Some(Errno::AGAIN) => Ok(Told::Yes),
            Some(Errno::CONNREFUSED) => Ok(Told::NobodyThere),
            // Cleaned away after its end, or deleted under one who lives.
            Some(Errno::NOENT) => Ok(Told::Unknown),
            _ => Err(problem),
        }
    }
}

fn sender() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn is_full(sent: &io::Result<usize>) -> bool {
    sent.as_ref().is_err_and(|problem| problem.kind() == io::ErrorKind::WouldBlock)
}

/// Where sessions listen. An address has at most 108 bytes, a folder's path may have more.
#[derive(Debug)]
pub(crate) struct SocketPaths {
    sessions: PathBuf,
    /// Kept open for paths by way of `/proc`; `None` if the plain path is short enough.
    folder: Option<fs::File>,
}

impl SocketPaths {
    const LONGEST: usize = 107;

    pub(crate) fn new(sessions: &Sessions) -> Result<Self> {
        let path = sessions.folder();
        let fits = path.as_os_str().len() + "/0123456789abcdef.sock".len() <= Self::LONGEST;
        let open = || fs::File::open(path).map_err(|problem| of_io(problem, "open", path));
        let folder = if fits { None } else { Some(open()?) };
        Ok(Self { sessions: path.to_owned(), folder })
    }

    pub(crate) fn bind(&self, id: SessionId) -> Result<UnixDatagram> {
        let bind = || -> io::Result<UnixDatagram> {
            let path = self.of(id);
            let socket = UnixDatagram::bind(&path)?;
            // Whatever the umask leaves: one user, and all of that user's processes.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        bind().map_err(|problem| of_io(problem, "listen in", &self.sessions))
    }

    fn of(&self, id: SessionId) -> PathBuf {
        let name = format!("{}.sock", id.as_str());
        match &self.folder {
            None => self.sessions.join(name),
            Some(folder) => Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name),
        }
    }
}

/// How many messages a socket holds before it turns senders away; one who reads this many in one
/// go may have missed some.
pub(crate) fn queue_length() -> usize {
    const USUAL: usize = 10;
    fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .map_or(1, |length: usize| length.clamp(1, USUAL))
}

/// Those of this process who wait, by claim.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<ClaimId, (Arc<Notify>, usize)>>);

impl Waiters {
    /// Enlists someone who waits for news of `claim`.
    pub(crate) fn enlist(self: &Arc<Self>, claim: ClaimId) -> Waiter {
        let mut waiters = self.0.lock();
        let (turn, count) = waiters.entry(claim).or_default();
        *count += 1;
        Waiter { claim, turn: Arc::clone(turn), all: Arc::clone(self) }
    }

    pub(crate) fn tell(&self, claim: ClaimId) {
        if let Some((turn, _)) = self.0.lock().get(&claim) {
            turn.notify_waiters();
        }
    }

    pub(crate) fn tell_all(&self) {
        self.0.lock().values().for_each(|(turn, _)| turn.notify_waiters());
    }
}

/// One who waits; leaves the list when dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    claim: ClaimId,
    pub(crate) turn: Arc<Notify>,
    all: Arc<Waiters>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.all.0.lock();
        if let Some((_, count)) = waiters.get_mut(&self.claim) {
            *count -= 1;
            if *count == 0 {
                waiters.remove(&self.claim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions_below(depth: usize) -> (tempfile::TempDir, Sessions) {
        let folder = tempfile::tempdir().unwrap();
        let deep =
            (0..depth).fold(folder.path().to_owned(), |path, _| path.join("a-rather-long-folder-name"));
        fs::create_dir_all(&deep).unwrap();
        (folder, Sessions::new(deep))
    }

    #[test]
    fn messages_arrive_also_below_a_long_path_and_a_dead_listener_is_noticed() {
        for depth in [0, 12] {
            let (_folder, sessions) = sessions_below(depth);
            let (id, _file) = sessions.start().unwrap();
            let paths = SocketPaths::new(&sessions).unwrap();
            let socket = paths.bind(id).unwrap();
            let post = Post::new(paths).unwrap();
            let wake = Wake { session: id, claim: ClaimId::random(), news: News::Look };
            assert_eq!(post.tell(&wake), Told::Yes);
            let mut buffer = [0; 32];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(decode(&buffer[..length]), Some((LOOK, wake.claim)));
            drop(socket);
            assert_eq!(post.tell(&wake), Told::NobodyThere);
        }
    }

    #[test]
    fn who_cannot_be_reached_is_neither_told_nor_dead() {
        let (_folder, sessions) = sessions_below(0);
        let (id, _file) = sessions.start().unwrap();
        let paths = SocketPaths::new(&sessions).unwrap();
        let _socket = paths.bind(id).unwrap();
        let post = Post::new(paths).unwrap();
        let wake = Wake { session: id, claim: ClaimId::random(), news: News::Look };
        let path = sessions.socket_path(id);
        fs::remove_file(&path).unwrap();
        assert_eq!(post.tell(&wake), Told::Unknown);
        // A way that leads nowhere, as an example of any other error.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert_eq!(post.tell(&wake), Told::Unknown);
    }

    #[test]
    fn a_session_can_be_told_by_its_own_user_only() {
        for depth in [0, 12] {
            let (_folder, sessions) = sessions_below(depth);
            let (id, _file) = sessions.start().unwrap();
            let _socket = SocketPaths::new(&sessions).unwrap().bind(id).unwrap();
            let mode = fs::metadata(sessions.socket_path(id)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_full_queue_is_no_loss_because_the_reader_sees_how_full_it_was() {
        let (_folder, sessions) = sessions_below(0);
        let (id, _file) = sessions.start().unwrap();
        let paths = SocketPaths::new(&sessions).unwrap();
        let socket = paths.bind(id).unwrap();
        let post = Post::new(paths).unwrap();
        for _ in 0..1000 {
            let wake = Wake { session: id, claim: ClaimId::random(), news: News::Look };
            assert_eq!(post.tell(&wake), Told::Yes);
        }
        let mut buffer = [0; 32];
        let waiting = std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count();
        assert!(waiting >= queue_length() && waiting < 1000);
    }
}
