use std::collections::BTreeSet;

use palisade_core::{Inspection, Matching, Name, Page, ResourceView, Result, Selector};
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{Cmd, FromRedisValue, Value};

use crate::config::Dialect;
use crate::dial::Line;
use crate::engine::Inner;
use crate::error::{failed, unexpected};
use crate::record::Shown;
use crate::reply::{self, Reply};

impl Inner {
    pub(crate) async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        if !selector.wants_resources() {
            return Ok(Inspection::default());
        }
        let after = |name: &Name| page.after.as_ref().is_none_or(|after| name > after);
        let mut inspection = Inspection::default();
        for name in self.resources(selector).await?.into_iter().filter(after) {
            if inspection.resources.len() == page.limit {
                inspection.next = inspection.resources.last().map(|last| last.resource.clone());
                break;
            }
            inspection.resources.extend(self.resource(&name, is_exact(selector)).await?);
        }
        Ok(inspection)
    }

    /// Names of resources that may have claims.
    async fn resources(&self, selector: &Selector) -> Result<BTreeSet<Name>> {
        match &selector.matching {
            Matching::Exact(name) => Ok([name.clone()].into()),
            Matching::Prefix(_) => {
                let sides = self.scan(&self.layout.side_pattern()).await?;
                let sides = sides.iter().filter_map(|key| self.layout.resource_of_side(key));
                let locks = self.locks().await?;
                let locks = locks.iter().filter_map(|key| self.layout.resource_of_lock(key));
                Ok(sides.chain(locks).filter(|name| selector.matches(name)).collect())
            }
        }
    }

    /// Who holds and who waits for a resource; nothing if nobody does. Another client's lock is shown
    /// only to those who ask for it by name: to list them all would be to list all keys there are.
    pub(crate) async fn resource(&self, name: &Name, foreign: bool) -> Result<Option<ResourceView>> {
        let call = self.call_on(&self.scripts.inspect, [name].into_iter(), |_| {});
        let mut reply = Reply::new(self.link.call(&call).await?.value)?;
        let now = reply.parsed()?;
        let shown = reply::shown(reply.next()?)?;
        let shown: Vec<&Shown> = shown.iter().filter(|one| foreign || one.foreign.is_none()).collect();
        if shown.is_empty() {
            return Ok(None);
        }
        let (holders, waiters): (Vec<&Shown>, Vec<&Shown>) = shown.into_iter().partition(|one| one.holds);
        let views =
            |claims: Vec<&Shown>| claims.into_iter().map(|one| one.view(now)).collect::<Result<Vec<_>>>();
        Ok(Some(ResourceView { resource: name.clone(), holders: views(holders)?, waiters: views(waiters)? }))
    }

    /// All keys that match, on all servers.
    pub(crate) async fn scan(&self, pattern: &str) -> Result<BTreeSet<String>> {
        self.step_through(|cursor| {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
            command
        })
        .await
    }

    /// All lock keys at which a claim of ours holds alone.
    async fn locks(&self) -> Result<BTreeSet<String>> {
        if self.config.dialect != Dialect::Plain {
            return Ok(BTreeSet::new());
        }
        let pattern = self.layout.lock_pattern();
        let step = |cursor| {
            let call = self.scripts.list.call(0, |command| {
                command.arg(cursor).arg(&pattern).arg(1000);
            });
            call.by_text()
        };
        self.step_through(step).await
    }

    /// What a command finds that begins at a cursor and answers with the next one, on all servers.
    async fn step_through(&self, step: impl Fn(u64) -> Cmd) -> Result<BTreeSet<String>> {
        let mut keys = BTreeSet::new();
        for node in self.nodes().await? {
            let mut cursor = 0;
            loop {
                let command = step(cursor);
                let mut reply = Reply::new(self.command_at(command, node.as_ref()).await?)?;
                cursor = reply.parsed::<u64>()?;
                for key in Reply::new(reply.next()?)? {
                    // What is no text is no key of ours.
                    keys.extend(String::from_utf8(reply::bytes(key)?));
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// All servers that have keys; `None` for the only one.
    pub(crate) async fn nodes(&self) -> Result<Vec<Option<(String, u16)>>> {
        if !matches!(self.config.servers, crate::Servers::Cluster(_)) {
            return Ok(vec![None]);
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges = Reply::new(self.link.command(&command).await?.value)?;
        let mut nodes = BTreeSet::new();
        for range in ranges {
            let mut master = Reply::new(Reply::new(range)?.nth(2).ok_or_else(unexpected)?)?;
            let host = master.text()?;
            nodes.insert((host, u16::try_from(master.number()?).map_err(|_| unexpected())?));
        }
        Ok(nodes.into_iter().map(Some).collect())
    }

    async fn command_at(&self, command: Cmd, node: Option<&(String, u16)>) -> Result<Value> {
        match (node, self.link.line().await?.line) {
            (Some((host, port)), Line::Cluster(mut cluster)) => {
                let node = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                let answer = cluster.route_command(command, RoutingInfo::SingleNode(node)).await;
                Value::from_redis_value(answer.map_err(failed)?).map_err(|_| unexpected())
            }
            _ => Ok(self.link.command(&command).await?.value),
        }
    }
}

fn is_exact(selector: &Selector) -> bool {
    matches!(selector.matching, Matching::Exact(_))
}
