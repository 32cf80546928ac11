use std::ffi::OsString;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::{Shape, Tell};
use crate::effort::Effort;
use crate::report::{Measure, Row};
use crate::stats::{median, micros};
use crate::target::Target;

/// `palisade run NAME -- true` next to what a shell script would use instead.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    if !target.crosses_processes {
        let why = "this engine ends with its process, so a command under a lock keeps nobody out";
        return Ok(vec![Row::not_applicable(Shape::Command, why)]);
    }
    let Some(bare) = target.raw.command() else {
        return Ok(vec![Row::not_applicable(Shape::Command, "there is no bare command to compare with")]);
    };
    let mut ours = vec![target.program.clone().into_os_string()];
    ours.extend(["run", "bench", "--", "true"].map(OsString::from));
    if let Err(problem) = time(target, &bare).await {
        return Ok(vec![Row::not_applicable(Shape::Command, &format!("{problem:#}"))]);
    }
    let (mut ratios, mut ours_us, mut raw_us) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.rounds {
        tell(&format!("command: round {round} of {}", effort.rounds));
        let (mut ours_round, mut raw_round) = (Vec::new(), Vec::new());
        for _ in 0..effort.commands {
            ours_round.push(time(target, &ours).await?);
            raw_round.push(time(target, &bare).await?);
        }
        ratios.extend(median(&ours_round).zip(median(&raw_round)).map(|(ours, raw)| ours / raw));
        ours_us.extend(ours_round);
        raw_us.extend(raw_round);
    }
    let ends =
        [bare.first(), bare.last()].map(|word| word.map(|word| word.to_string_lossy()).unwrap_or_default());
    let row = Row {
        raw: ends.join(" … "),
        ..Row::new(Shape::Command, "run NAME -- true", "a command from start to end")
    };
    Ok(vec![row.times(&ours_us, &raw_us).ratios(Measure::Time, &ratios)])
}

/// The engine goes by the environment: its URL may hold a password, which a process list shows.
async fn time(target: &Target, command: &[OsString]) -> Result<f64> {
    let (program, arguments) = command.split_first().context("a command has a name")?;
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .env("PALISADE_ENGINE", &target.url)
        .env("PALISADE_NAMESPACE", &target.namespace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} failed: {status}", program.display());
    Ok(micros(start.elapsed()))
}
