use anyhow::{Result, bail};
use palisade::Client;

use super::worker::Spec;

pub(super) fn plant(spec: &Spec, client: Client) -> Result<Client> {
    match &spec.bug {
        None => Ok(client),
        Some(bug) => bail!("this build has no bugs planted, not even {bug:?}"),
    }
}
