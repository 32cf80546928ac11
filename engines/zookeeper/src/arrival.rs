use std::sync::Arc;

use palisade_core::{Error, ErrorKind, Result, Source};
use uuid::Uuid;

use crate::engine::Inner;
use crate::error::{Code, contended, refused};
use crate::proto::{Kind, agree, create, get_data, set_data};
use crate::session::Session;
use crate::take::TRIES;

/// What a cluster told when we arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Who counts its tokens.
    pub(crate) source: Source,
    /// Whether it has gone back since we were here last.
    pub(crate) went_back: bool,
}

impl Inner {
    /// Asks who counts here. It is answered only by a server that can decide.
    ///
    /// `before` is the source as it was known here, and the greatest transaction seen.
    pub(crate) async fn arrive(
        &self,
        session: &Arc<Session>,
        before: Option<(&Source, i64)>,
    ) -> Result<Facts> {
        session.ask(agree()).await?.ok().map_err(|error| self.denied(error))?;
        let fell = before.is_some_and(|(_, seen)| session.zxid() < seen);
        let path = self.layout.source();
        let fresh = Uuid::new_v4().simple().to_string();
        for _ in 0..TRIES {
            let stored = session.ask(get_data(&path, false)).await?.node();
            let Some(stored) = stored.map_err(|error| self.denied(error))? else {
                match session.ask(create(&path, fresh.as_bytes(), Kind::Persistent, self.acl())).await?.code {
                    Code::OK | Code::NODE_EXISTS => {}
                    Code::NO_NODE => {
                        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                        self.make(session, above, Kind::Persistent)
                            .await
                            .map_err(|error| self.denied(error))?;
                    }
                    code => return Err(self.denied(refused(code))),
                }
                continue;
            };
            let source = Source::new(format!("zk-{}", String::from_utf8_lossy(&stored.data)));
            let known = before.is_some_and(|(known, _)| *known == source);
            if fell && known {
                // Tokens begin again below those that were given: they get another source.
                session.ask(set_data(&path, fresh.as_bytes(), stored.stat.version)).await?;
                continue;
            }
            return Ok(Facts { source, went_back: before.is_some() && !known });
        }
        Err(contended())
    }

    fn denied(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Denied {
            return error;
        }
        let (root, config) = (&self.layout.root, &self.servers.config);
        let who = config.login.as_ref().map_or_else(
            || "nobody has logged in (user:password@)".to_owned(),
            |login| format!("this client is {:?}", login.user),
        );
        let message = format!(
            "{}; locks need the rights cdrw at {root}, or at what is above it if it is not there yet, and {who}",
            error.message()
        );
        Error::new(ErrorKind::Denied, message).because(error)
    }
}
