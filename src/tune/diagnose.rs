//! `windlass tune diagnose`: looks at a running operator for a while, and says which flag to turn.
//!
//! # Guarantees
//! - A running operator is judged by the time between two scrapes. (test: `two_files_are_compared`)

use std::time::Duration;

use super::figures::Figures;
use super::observed;
use super::scrape::Scrape;
use super::setting::Setting;
use super::sweep::Output;
use super::verdict;
use crate::cli::{Failure, print};
use crate::duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It knows the names of client-go and controller-runtime, so it reads the metrics of Go operators, too. With several files \
it compares the first with the last, which are --for apart; without process metrics it cannot know.

  windlass tune diagnose http://127.0.0.1:8080/metrics --for 30s
  windlass tune diagnose before.txt after.txt --for 5m

A bearer token for the URL is taken from WINDLASS_METRICS_TOKEN.")]
pub(crate) struct Args {
    /// URL of /metrics, which is read twice; or two or more files with its text, in the order of their times
    #[arg(value_name = "URL|FILE", required = true)]
    from: Vec<String>,

    /// How long to look; for files, the time between the first and the last
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    r#for: Duration,

    /// Format of the result; flags, helm and env print what to change alone, of an operator that is this program
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.r#for < Duration::from_secs(1) {
        return Err(Failure::Usage {
            cause: format!("--for ({:?}) is below 1s", args.r#for),
            remedy: "Look for at least a second; a minute gives steadier figures.".to_owned(),
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Running(format!("could not start the runtime: {error}")))?;
    let (figures, is_standby) = runtime.block_on(look(args))?;
    let mut text = verdict::diagnose(&figures);
    if is_standby {
        text.insert(
            0,
            "This process does not lead, so it makes no passes: look at the one that does (windlass status)."
                .to_owned(),
        );
    }
    let change = Setting(verdict::advised(&figures));
    print(&match args.output {
        Output::Table => format!("{}\n", text.join("\n")),
        Output::Json => {
            format!("{:#}\n", serde_json::json!({"figures": figures, "verdict": text, "change": change}))
        }
        Output::Flags | Output::Helm | Output::Env if change.0.is_empty() => {
            eprintln!("Nothing to change.");
            String::new()
        }
        Output::Flags | Output::Helm | Output::Env => change.to_apply(args.output),
    })
}

/// Returns the figures, and whether the process only stood by at the end.
async fn look(args: &Args) -> Result<(Figures, bool), Failure> {
    let seconds = args.r#for.as_secs_f64();
    match args.from.as_slice() {
        [url] if url.contains("://") => {
            let (before, from) = observed::scrape(url).await?;
            eprintln!("Looking at {url} for {:?}", args.r#for);
            tokio::time::sleep(args.r#for).await;
            let (after, to) = observed::scrape(url).await?;
            Ok((Figures::between(&before, &after, to - from), is_standby(&after)))
        }
        [first, .., last] => {
            let (before, _) = observed::scrape(first).await?;
            let (after, _) = observed::scrape(last).await?;
            Ok((Figures::between(&before, &after, seconds), is_standby(&after)))
        }
        _ => Err(Failure::Usage {
            cause: "one file has no rates".to_owned(),
            remedy: "Give a URL, or two files and --for with the time between them.".to_owned(),
        }),
    }
}

/// Whether the process takes part in a leader election and has not won it.
fn is_standby(scrape: &Scrape) -> bool {
    const STATUS: &str = "leader_election_master_status";
    scrape.has(STATUS) && scrape.sum(STATUS, &[]) == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_lead_is_told_apart() {
        let of = |text| is_standby(&Scrape::parse(text));
        assert!(of("leader_election_master_status{name=\"a\"} 0\n"));
        assert!(!of("leader_election_master_status{name=\"a\"} 1\n"));
        assert!(!of("up 1\n"), "without an election");
    }

    #[tokio::test]
    async fn two_files_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, adds: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("workqueue_adds_total{{name=\"foo\"}} {adds}\n")).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let from = vec![file("first", 100), file("last", 400)];
        let args = Args { from, r#for: Duration::from_secs(30), output: Output::Table };
        let (figures, _) = look(&args).await.unwrap();
        assert!((figures.controllers[0].arrivals_per_second - 10.0).abs() < 1e-9);
        let args = Args { from: vec![file("only", 1)], ..args };
        assert!(look(&args).await.unwrap_err().to_string().contains("one file has no rates"));
        let empty = dir.path().join("empty").to_str().unwrap().to_owned();
        std::fs::write(&empty, "up 1\n").unwrap();
        let args = Args { from: vec![empty.clone(), empty], ..args };
        assert!(look(&args).await.unwrap_err().to_string().contains("workqueue_adds_total"));
    }
}
