//! Fencing before an HTTP handler runs.

mod fences;
mod header;
mod layer;

pub use self::fences::{Fences, MemoryFences};
pub use self::header::{InvalidTokenHeader, TOKEN_HEADER, TokenHeader};
pub use self::layer::{FenceLayer, FenceService};
