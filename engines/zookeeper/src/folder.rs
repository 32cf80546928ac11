use std::sync::Arc;

use palisade_core::Result;

use crate::conn::{Answer, Conn};
use crate::engine::Inner;
use crate::error::{Code, refused};
use crate::keys::{LEASES, QUEUE};
use crate::line::Line;
use crate::proto::{Acl, Kind, create, get_all, get_children};
use crate::session::Session;

/// How many nodes are read in one go.
const TOGETHER: usize = 500;

impl Inner {
    pub(crate) fn acl(&self) -> Acl {
        self.servers.config.acl
    }

    /// Makes the folder of a resource, which the servers sweep away some time after its last claim.
    pub(crate) async fn make_folder(&self, session: &Arc<Session>, folder: &str) -> Result<()> {
        self.make(session, folder, Kind::Container).await
    }

    /// Makes one of the folders for slots in the folder of a resource, and that one if it is not there.
    pub(crate) async fn make_below(&self, session: &Arc<Session>, folder: &str, below: &str) -> Result<()> {
        self.make_folder(session, folder).await?;
        self.make_folder(session, &format!("{folder}/{below}")).await
    }

    /// The line of a resource as the names of its nodes tell it: right away also what is below, if `slots` are
    /// asked for, or only if there is something.
    pub(crate) async fn list(&self, session: &Session, folder: &str, slots: bool) -> Result<Line> {
        let conn = session.conn().await?;
        let look = conn.send(get_children(folder, false));
        if slots {
            let below = ask_below(&conn, folder);
            let names = session.answer(look).await?.children()?.unwrap_or_default();
            return whole_line(session, names, below).await;
        }
        let names = session.answer(look).await?.children()?.unwrap_or_default();
        self.list_below(session, folder, names).await
    }

    /// The same, where the names right in the folder are known.
    pub(crate) async fn list_below(
        &self,
        session: &Session,
        folder: &str,
        names: Vec<String>,
    ) -> Result<Line> {
        if !names.iter().any(|name| name == QUEUE || name == LEASES) {
            return Ok(Line::of_names(names));
        }
        let conn = session.conn().await?;
        whole_line(session, names, ask_below(&conn, folder)).await
    }

    /// Makes a node, and all above it. One that is there will do.
    pub(crate) async fn make(&self, session: &Arc<Session>, path: &str, kind: Kind) -> Result<()> {
        let mut missing = vec![(path, kind)];
        // Each turn makes one, or finds out that another one must be made first.
        while let Some((path, kind)) = missing.pop() {
            let code = session.ask(create(path, b"", kind, self.acl())).await?.code;
            match code {
                Code::OK | Code::NODE_EXISTS => {}
                Code::NO_NODE => {
                    let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                    if above.is_empty() {
                        return Err(refused(code));
                    }
                    missing.extend([(path, kind), (above, Kind::Persistent)]);
                }
                code => return Err(refused(code)),
            }
        }
        Ok(())
    }

    /// Reads the first `count` nodes of a line, and the number of slots in force. `false` if it must be listed
    /// again: somebody who waited for a slot is not there any more, and may have got it.
    pub(crate) async fn fill(
        &self,
        session: &Session,
        folder: &str,
        line: &mut Line,
        count: usize,
    ) -> Result<bool> {
        let mut paths = vec![folder.to_owned()];
        paths.extend(line.entries[..count].iter().map(|entry| format!("{folder}/{}", entry.name)));
        let conn = session.conn().await?;
        let answers: Vec<_> = paths.chunks(TOGETHER).map(|some| conn.send(get_all(some))).collect();
        let mut nodes = Vec::with_capacity(paths.len());
        for answer in answers {
            nodes.extend(session.answer(answer).await?.nodes()?);
        }
        let above = if nodes.is_empty() { None } else { nodes.remove(0) };
        if let Some(above) = above {
            line.version = above.stat.version;
            let slots = above.data.strip_prefix(SLOTS).and_then(|text| std::str::from_utf8(text).ok());
            line.resized = slots.and_then(|text| text.parse().ok()).map(|of| (of, above.stat.written));
        }
        Ok(line.fill(nodes))
    }
}

/// Asks who waits for slots and who has them, in this order: whoever gets one in between is seen in both, and never
/// in neither.
fn ask_below(conn: &Conn, folder: &str) -> [Answer; 2] {
    [QUEUE, LEASES].map(|below| conn.send(get_children(&format!("{folder}/{below}"), false)))
}

async fn whole_line(session: &Session, names: Vec<String>, [queued, leased]: [Answer; 2]) -> Result<Line> {
    let queued = session.answer(queued).await?.children()?.unwrap_or_default();
    let leased = session.answer(leased).await?.children()?.unwrap_or_default();
    Ok(Line::of_all(names, queued, leased))
}

/// What a folder's data begins with if the number of slots was changed.
pub(crate) const SLOTS: &[u8] = b"slots=";
