//! Lock clients of others, in processes of their own, contend with Palisade on one key of one Redis
//! server. The programs around those clients and the protocol they speak are in `clients`;
//! `cargo xtask interop` prepares them and starts this.

mod crossing;
mod ours;
mod pairing;
mod server;
mod table;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::ours::Lock;
use crate::worker::Client;

#[derive(Parser)]
#[command(about = "Lets lock clients of others contend with Palisade on one key")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs every pairing and every crossing case, and prints what came of each.
    Run(Run),
    /// Is one of the contending processes, with Palisade's lock or with none.
    Client {
        /// How it locks.
        #[arg(value_enum)]
        lock: Lock,
        /// The server's port on this host.
        port: u16,
        /// The key all contend for.
        key: String,
        #[command(subcommand)]
        task: ours::Task,
    },
}

#[derive(clap::Args)]
struct Run {
    /// A foreign client and the command that starts it, split at spaces.
    #[arg(long = "client", value_name = "NAME=COMMAND", value_parser = Client::parse)]
    clients: Vec<Client>,
    /// The `palisade` command.
    #[arg(long)]
    palisade: PathBuf,
    /// How many turns each process takes.
    #[arg(long, default_value_t = 500)]
    turns: u32,
    /// How long each pauses between two turns, on average. Without a pause our queue is never empty,
    /// and leaves little to those that poll.
    #[arg(long, default_value_t = 2_000)]
    pause_us: u64,
    /// How many processes of ours contend; of each foreign client it is two.
    #[arg(long, default_value_t = 2)]
    ours: u32,
    /// Only pairings whose name has this in it, and no crossing cases.
    #[arg(long)]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("palisade-interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    match args.verb {
        Verb::Client { lock, port, key, task } => ours::run(lock, port, &key, task).await,
        Verb::Run(run) => contend(run).await,
    }
}

async fn contend(run: Run) -> Result<()> {
    let server = server::Server::start().await?;
    println!("redis-server {} on port {}", server.version().await?, server.port());
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    let pace = pairing::Pace { turns: run.turns, pause_us: run.pause_us, ours: run.ours };
    for pairing in pairing::all(&run.clients, pace)? {
        if run.only.as_ref().is_none_or(|part| pairing.name.contains(part.as_str())) {
            println!("… {}", pairing.name);
            match pairing.run(&server).await {
                Ok(report) => rows.push(report),
                Err(error) => problems.push(format!("{}: {error:#}", pairing.name)),
            }
        }
    }
    println!("{}", table::of(&rows));
    problems.extend(rows.iter().flat_map(pairing::Report::problems));
    if run.only.is_none() {
        problems.extend(crossing::run(&server, &run.clients, &run.palisade).await);
    }
    anyhow::ensure!(problems.is_empty(), "{} problems:\n  {}", problems.len(), problems.join("\n  "));
    Ok(())
}
