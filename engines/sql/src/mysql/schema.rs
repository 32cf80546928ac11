use palisade_core::{Error, ErrorKind, Result};

use super::MySqlConfig;
use super::arrival::number;
use super::error::failed;
use super::line::Line;

/// What brings the schema from each version to the next, beginning with none. Each can be run again: what a server does
/// to its schema is not undone if it crashes half-way.
const STEPS: &[&str] =
    &[include_str!("../../schema/mysql.sql"), include_str!("../../schema/mysql-sessions.sql")];

/// The version of the schema that this program knows.
pub(super) const VERSION: usize = STEPS.len();

/// The statements that make the schema, for those who run them themselves with the program `mysql` or `mariadb`, in
/// the database that it is to be in.
pub fn mysql_schema() -> String {
    let steps: Vec<String> = (0..VERSION).map(step).collect();
    steps.join("\n")
}

fn step(version: usize) -> String {
    STEPS[version].replace("{version}", &(version + 1).to_string())
}

/// Each statement by itself: what ends one is a line of two slashes.
fn statements(step: &str) -> Vec<String> {
    let begun = step.split_once("DELIMITER //\n").map_or(step, |(_, rest)| rest);
    let (all, _) = begun.rsplit_once("DELIMITER ;").unwrap_or((begun, ""));
    let trimmed = all.split("\n//\n").map(|one| one.trim().to_owned());
    trimmed.filter(|one| !one.is_empty()).collect()
}

/// Makes the schema, or brings it up to date; one client at a time.
pub(super) async fn make(config: &MySqlConfig, line: &Line) -> Result<()> {
    const LOCK: &str = "CONCAT('palisade.', LEFT(SHA2(DATABASE(), 256), 40))";
    let patience = config.connect_timeout.as_secs().max(1) * 3;
    let locked = line.text(format!("SELECT GET_LOCK({LOCK}, {patience})")).await?.map_err(failed)?;
    if locked.first().and_then(|row| number(row, 0)) != Some(1) {
        let message = "somebody else makes the schema, and is not done yet";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    let made = make_alone(config, line).await;
    let freed = line.text(format!("SELECT RELEASE_LOCK({LOCK})")).await?.map_err(failed);
    made.and(freed.map(drop))
}

async fn make_alone(config: &MySqlConfig, line: &Line) -> Result<()> {
    // Somebody else may have been faster.
    let meta = "SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = 'palisade_hello'";
    let there = line.text(meta).await?.map_err(failed)?.first().and_then(|row| number(row, 0)) == Some(1);
    let version = if there {
        let found = line.text("SELECT version FROM palisade_meta").await?;
        let found = found.map_err(|error| denied(config, failed(error)))?;
        found.first().and_then(|row| number(row, 0)).and_then(|found| found.try_into().ok()).unwrap_or(0)
    } else {
        0
    };
    for version in version..VERSION {
        for statement in statements(&step(version)) {
            line.text(statement).await?.map_err(|error| denied(config, failed(error)))?;
        }
    }
    Ok(())
}

fn denied(config: &MySqlConfig, error: Error) -> Error {
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    let database = &config.database;
    let message = format!(
        "there is no schema of version {VERSION} in {database:?}, and this user may not make it: {}; have somebody run what `palisade schema mysql` prints there, and GRANT EXECUTE ON `{database}`.* TO this user",
        error.message(),
    );
    Error::new(ErrorKind::Denied, message)
}

/// Refuses a schema that a newer program made.
pub(super) fn check_version(database: &str, found: i64) -> Result<()> {
    if usize::try_from(found).is_ok_and(|found| found <= VERSION) {
        return Ok(());
    }
    let message = format!(
        "the schema in {database:?} has version {found}, and this program knows version {VERSION} and older; use a newer program"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_whole() {
        let text = mysql_schema();
        assert!(!text.contains("{version}") && !text.contains("{schema}"));
        let steps: Vec<Vec<String>> = (0..VERSION).map(|version| statements(&step(version))).collect();
        for statements in &steps {
            let made = |what: &str| statements.iter().filter(|one| one.contains(what)).count();
            assert_eq!(made("CREATE PROCEDURE "), made("DROP PROCEDURE IF EXISTS "));
            assert!(statements.iter().all(|one| !one.contains("DELIMITER")), "{statements:?}");
        }
        // Each by what shows that it is there.
        for (statements, last) in steps.iter().zip(["palisade_hello", "SET version"]) {
            assert!(statements.last().is_some_and(|made| made.contains(last)), "made last");
        }
        let newer = check_version("shop", 9).unwrap_err().to_string();
        assert!(newer.contains('9') && newer.contains(&VERSION.to_string()), "{newer}");
    }
}
