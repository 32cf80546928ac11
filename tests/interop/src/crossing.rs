use std::path::Path;

use crate::server::Server;
use crate::worker::Client;

pub(crate) async fn run(_: &Server, _: &[Client], _: &Path) -> Vec<String> {
    Vec::new()
}
