//! How PostgreSQL is spoken to.

mod arrival;
mod config;
mod dial;
mod error;
mod line;
mod schema;
mod seat;
mod server;
mod sessions;
mod shedlock;
mod statement;
mod together;

pub(crate) use self::arrival::{arrive, is_pooled};
pub use self::config::{Keys, Listen, PostgresConfig};
pub(crate) use self::dial::{OnNews, dial};
pub(crate) use self::line::Line;
pub use self::schema::schema;
pub(crate) use self::seat::Seat;
pub(crate) use self::shedlock::{Statements as ShedlockStatements, find as find_shedlock};
