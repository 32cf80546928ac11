use palisade_core::{Error, ErrorKind, Result};

use super::error::failed;
use super::line::Line;

/// What brings the schema from each version to the next, beginning with none.
const STEPS: &[&str] =
    &[include_str!("../../schema/postgres.sql"), include_str!("../../schema/postgres-sessions.sql")];

/// The version of the schema that this program knows.
pub(super) const VERSION: usize = STEPS.len();

/// The statements that make the schema called `name`, for those who run them themselves.
pub fn schema(name: &str) -> String {
    let name = quoted(name);
    let steps: Vec<String> = (0..VERSION).map(|version| step(version, &name)).collect();
    format!("BEGIN;\nCREATE SCHEMA {name};\n\n{}\nCOMMIT;\n", steps.join("\n"))
}

fn step(version: usize, name: &str) -> String {
    // The name last: it may hold anything.
    STEPS[version].replace("{version}", &(version + 1).to_string()).replace("{schema}", name)
}

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL has it, whatever a server takes a backslash for.
pub(super) fn literal(text: &str) -> String {
    let prefix = if text.contains('\\') { " E" } else { "" };
    format!("{prefix}'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

/// Makes the schema, or brings it up to date; one client at a time.
pub(super) async fn make(line: &Line, name: &str) -> Result<()> {
    line.text("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(failed)?;
    let made = make_inside(line, name).await;
    let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = line.text(end).await.map_err(failed);
    made.and(ended.map(drop))
}

async fn make_inside(line: &Line, name: &str) -> Result<()> {
    line.text("SELECT pg_advisory_xact_lock(hashtextextended('palisade schema', 0))")
        .await
        .map_err(failed)?;
    let denied = |error: tokio_postgres::Error| {
        let error = failed(error);
        if error.kind() != ErrorKind::Denied {
            return error;
        }
        let message = format!(
            "there is no schema {name:?} of version {VERSION}, and this user may not make it: {}; have somebody run what `palisade schema` prints, and GRANT USAGE ON SCHEMA {} TO this user",
            error.message(),
            quoted(name),
        );
        Error::new(ErrorKind::Denied, message)
    };
    // Its owner could replace what we make there, and what we make runs with our rights.
    let there = format!(
        "SELECT pg_get_userbyid(nspowner), pg_has_role(nspowner, current_user, 'MEMBER') FROM pg_namespace WHERE nspname = {}",
        literal(name)
    );
    match line.text(&there).await.map_err(failed)?.first().map(Vec::as_slice) {
        None => drop(line.text(&format!("CREATE SCHEMA {}", quoted(name))).await.map_err(denied)?),
        Some([owner, trusted]) if trusted != "t" => {
            let message = format!(
                "the schema {name:?} is there already and belongs to {owner:?}, who may do less than this user: have {owner:?} make what `palisade schema` prints, or name another schema"
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
        Some(_) => {}
    }
    // Somebody else may have been faster.
    let meta = format!(
        "SELECT 1 FROM pg_class JOIN pg_namespace AS home ON home.oid = relnamespace WHERE relname = 'meta' AND nspname = {}",
        literal(name)
    );
    let version = if line.text(&meta).await.map_err(failed)?.is_empty() {
        0
    } else {
        let found = line.text(&format!("SELECT version FROM {}.meta", quoted(name))).await.map_err(denied)?;
        found.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(0)
    };
    for version in version..VERSION {
        line.text(&step(version, &quoted(name))).await.map_err(denied)?;
    }
    Ok(())
}

/// Refuses a schema that a newer program made.
pub(super) fn check_version(name: &str, found: i64) -> Result<()> {
    if usize::try_from(found).is_ok_and(|found| found <= VERSION) {
        return Ok(());
    }
    let message = format!(
        "the schema {name:?} has version {found}, and this program knows version {VERSION} and older; use a newer program"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), " E'a\\\\''b'");
    }

    #[test]
    fn the_schema_is_whole() {
        let text = schema("my locks");
        assert!(text.contains("CREATE TABLE \"my locks\".claim") && !text.contains("{schema}"));
        assert!(!text.contains("{version}"));
        let newer = check_version("palisade", 9).unwrap_err().to_string();
        assert!(newer.contains('9') && newer.contains(&VERSION.to_string()), "{newer}");
    }
}
