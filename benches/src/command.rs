use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::stats::{Figure, Goal, median, micros, spread};
use crate::{folder, url};

/// `palisade run NAME -- true` next to `flock FILE true`.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let folder = folder()?;
    let palisade = palisade_command()?;
    let lock = folder.path().join("flock");
    let engine = url(&folder);
    let (mut ratios, mut ours_us, mut flock_us) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..9 {
        let (mut ours, mut flock) = (Vec::new(), Vec::new());
        for _ in 0..25 {
            ours.push(time(
                Command::new(&palisade).args(["--engine", &engine, "run", "bench", "--", "true"]),
            )?);
            flock.push(time(Command::new("flock").arg(&lock).arg("true"))?);
        }
        let (ours, flock) = (median(&mut ours), median(&mut flock));
        ratios.push(ours / flock);
        ours_us.push(ours);
        flock_us.push(flock);
    }
    let (low, high) = spread(&ratios);
    Ok(vec![Figure {
        what: "palisade run NAME -- true / flock FILE true".to_owned(),
        value: median(&mut ratios),
        unit: "x",
        goal: Goal::AtMost(3.0),
        detail: format!(
            "{:.2} ms / {:.2} ms, ratio {low:.2}-{high:.2}",
            median(&mut ours_us) / 1e3,
            median(&mut flock_us) / 1e3
        ),
    }])
}

fn time(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let status = command.status().with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(micros(start.elapsed()))
}

/// The command that was built next to this program.
fn palisade_command() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("palisade");
    ensure!(path.exists(), "build the command first: cargo build --release -p palisade-cli");
    Ok(path)
}
