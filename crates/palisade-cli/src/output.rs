//! Printing: JSON for programs, tables and colour for people.

mod json;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Attribute, Cell, Table, presets};
use palisade::{ClaimView, Owner};

pub(crate) use self::json::{leader_json, register_json, resource_json};
use crate::exit::Outcome;

/// Prints one line.
pub(crate) fn line(text: impl Display) -> Outcome<()> {
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// Prints text as it is.
pub(crate) fn raw(bytes: &[u8]) -> Outcome<()> {
    let mut stdout = io::stdout();
    stdout.write_all(bytes)?;
    stdout.flush()?;
    Ok(())
}

/// Prints a table with its headings: aligned columns on a terminal, elsewhere tab-separated ones.
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<String>>) -> Outcome<()> {
    if !io::stdout().is_terminal() {
        let text: String = rows.into_iter().map(|row| row.join("\t") + "\n").collect();
        return raw(format!("{}\n{text}", headings.join("\t")).as_bytes());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let bold = if colour() { Attribute::Bold } else { Attribute::NormalIntensity };
    table.set_header(headings.iter().map(|heading| Cell::new(heading).add_attribute(bold)));
    if !colour() {
        table.force_no_tty();
    }
    table.add_rows(rows);
    line(table)
}

/// Whether to colour what goes to standard output; see no-color.org.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Text in bold, where there is colour.
pub(crate) fn bold(text: &str) -> String {
    if colour() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// How long something has lasted, to the second; shorter times to the millisecond.
pub(crate) fn age(age: Duration) -> String {
    let rounded = if age < Duration::from_secs(1) {
        Duration::from_millis(age.as_millis() as u64)
    } else {
        Duration::from_secs(age.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

/// For how long a claim has been there; nobody knows that of another client's lock.
pub(crate) fn known_age(claim: &ClaimView) -> Option<Duration> {
    (!is_foreign(&claim.owner)).then_some(claim.age)
}

/// The same for people.
pub(crate) fn age_of(claim: &ClaimView) -> String {
    known_age(claim).map_or_else(|| "-".to_owned(), age)
}

/// Whether it is another library's client, of which no more than its lock is known.
fn is_foreign(owner: &Owner) -> bool {
    owner.host.is_empty()
}

/// What others wrote, without characters that drive a terminal or hide among others.
pub(crate) fn printable(text: &str) -> String {
    let hides = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|letter| if hides(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Who it is: `host/pid label`; the label alone of somebody who is not one of ours, and has neither.
pub(crate) fn who(owner: &Owner) -> String {
    let label = owner.label.as_deref().map(printable);
    match label {
        Some(label) if is_foreign(owner) => label,
        Some(label) => format!("{}/{} {label}", printable(&owner.host), owner.pid),
        None => format!("{}/{}", printable(&owner.host), owner.pid),
    }
}

/// How it is held: `exclusive`, `shared`, `slot 2`.
pub(crate) fn mode(claim: &ClaimView) -> String {
    match claim.slot {
        Some(slot) => format!("{} {slot}", claim.mode),
        None => claim.mode.to_string(),
    }
}

/// A value for people.
pub(crate) fn value(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes))
}
