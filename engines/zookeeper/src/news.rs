use std::sync::Arc;

use palisade_core::{GoneReason, Result};

use crate::conn::{Conn, Ear};
use crate::engine::Inner;
use crate::error::{Code, refused};
use crate::keys::Layout;
use crate::proto::{Kind, create, delete, get_children, get_data, sync, watch_all};
use crate::session::Session;

impl Inner {
    /// Makes the place where this client is told things, and begins to listen there.
    pub(crate) async fn listen_to_news(&self, session: &Arc<Session>, conn: &Conn) -> Result<Arc<Ear>> {
        let folder = self.layout.client(&self.client);
        let alive = self.layout.alive(&self.client);
        // The usual case first: all is there but for what ends with a session.
        let mut code = session.ask(create(&alive, b"", Kind::Ephemeral, self.acl())).await?.code;
        if code == Code::NO_NODE {
            self.make(session, &folder, Kind::Container).await?;
            code = session.ask(create(&alive, b"", Kind::Ephemeral, self.acl())).await?.code;
        }
        if !matches!(code, Code::OK | Code::NODE_EXISTS) {
            return Err(refused(code));
        }
        let ear = conn.listen_below(&folder);
        session.answer(conn.send(watch_all(&folder))).await?.ok()?;
        Ok(ear)
    }

    /// Hears which claims of this client were ended by others.
    pub(crate) async fn take_news(&self) -> Result<()> {
        let folder = self.layout.client(&self.client);
        let main = self.main();
        let conn = main.conn().await?;
        let (caught_up, look) = (conn.send(sync(&folder)), conn.send(get_children(&folder, false)));
        main.answer(caught_up).await?.found()?;
        let names = main.answer(look).await?.children()?.unwrap_or_default();
        for name in names {
            let Some(claim) = Layout::grave_of(&name) else { continue };
            let path = format!("{folder}/{name}");
            let Some(grave) = main.ask(get_data(&path, false)).await?.node()? else { continue };
            let reason = String::from_utf8_lossy(&grave.data).into_owned();
            self.is_gone(claim, GoneReason::Evicted { reason });
            main.ask(delete(&path)).await?.found()?;
        }
        Ok(())
    }
}
