//! The report of a sweep: a table, JSON, and a page.
//!
//! # Guarantees
//! - Every setting has its row, and the advice is marked. (test: `table_has_a_row_for_each_setting`)

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use super::load::Load;
pub(super) use super::page::html;
use super::setting::Dimension;
use super::trial::Trial;
use super::verdict::{self, Verdict, percent, seconds};
use super::workload::Workload;

/// A finished or interrupted sweep.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    #[serde(flatten)]
    pub(super) subject: Subject<'a>,
    pub(super) seed: u64,
    /// How many settings were to be tried.
    pub(super) settings: usize,
    pub(super) trials: &'a [Trial],
    pub(super) verdict: Option<Verdict>,
}

/// What the trials simulate.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Subject<'a> {
    /// Our operator under this load.
    Load(&'a Load),
    /// Somebody's operator, of which only this is known.
    Workload(&'a Workload),
}

impl Report<'_> {
    /// Returns the result in words.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> =
            self.verdict.iter().flat_map(|verdict| &verdict.text).cloned().collect();
        if let Subject::Load(Load { history: Some(history), .. }) = self.subject {
            sentences.push(history.compared(self.trials));
        }
        sentences
    }
}

impl Subject<'_> {
    /// Returns a heading, and the subject as text.
    pub(super) fn described(self) -> (&'static str, String) {
        match self {
            Self::Load(load) => ("Load", load.to_yaml().unwrap_or_default()),
            Self::Workload(workload) => {
                ("Workload", serde_json::to_string_pretty(workload).unwrap_or_default())
            }
        }
    }
}

/// A column of the table: its heading, and the text of a trial.
type Column = (&'static str, fn(&Trial) -> String);

pub(super) const COLUMNS: [Column; 14] = [
    ("p50", |trial| seconds(trial.converged.p50)),
    ("p99", |trial| seconds(trial.converged.p99)),
    ("max", |trial| seconds(trial.converged.max)),
    ("drained", |trial| seconds(trial.drain_seconds)),
    ("/s", |trial| {
        format!("{:.1}", super::trial::to_f64(trial.changes - trial.pending) / trial.seconds.max(1e-9))
    }),
    ("depth", |trial| format!("{:.0}", trial.deepest_queue)),
    ("wait", |trial| of_controllers(trial, |controller| controller.mean_wait_seconds)),
    ("pass", |trial| of_controllers(trial, |controller| controller.mean_pass_seconds)),
    ("workers", |trial| percent(verdict::worker_utilization(trial))),
    ("server", |trial| of_server(trial, || percent(trial.server_utilization))),
    ("requests", |trial| of_server(trial, || verdict::requests(trial).to_string())),
    ("at once", |trial| trial.peak_requests_in_flight.to_string()),
    ("429", |trial| {
        let throttled = trial.requests.iter().filter(|request| request.code == 429);
        of_server(trial, || throttled.map(|request| request.count).sum::<u64>().to_string())
    }),
    ("retries", |trial| format!("{:.0}", trial.retries)),
];

/// Leaves out what a trial without requests does not know.
fn of_server(trial: &Trial, text: impl FnOnce() -> String) -> String {
    if trial.requests.is_empty() { "-".to_owned() } else { text() }
}

/// Returns a mean of all controllers, weighted by their passes.
fn of_controllers(trial: &Trial, read: fn(&super::figures::ControllerFigures) -> Option<f64>) -> String {
    let known = trial
        .figures
        .controllers
        .iter()
        .filter_map(|controller| Some((controller.passes_per_second, read(controller)?)));
    let (weight, sum) =
        known.fold((0.0, 0.0), |(weight, sum), (rate, value)| (weight + rate, sum + rate * value));
    if weight > 0.0 { seconds(sum / weight) } else { "-".to_owned() }
}

pub(super) fn table(report: &Report<'_>, dimensions: &[Dimension]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let flags = dimensions.iter().map(|dimension| format!("--{}", dimension.flag));
    table.set_header(
        [String::new()].into_iter().chain(flags).chain(COLUMNS.map(|(heading, _)| heading.to_owned())),
    );
    for trial in report.trials {
        let is_taken = report.verdict.as_ref().is_some_and(|verdict| verdict.take == trial.setting);
        let mark = if is_taken {
            "*"
        } else if trial.pending > 0 {
            "!"
        } else {
            ""
        };
        let values = dimensions
            .iter()
            .map(|dimension| trial.setting.get(dimension.flag).unwrap_or("default").to_owned());
        table
            .add_row([mark.to_owned()].into_iter().chain(values).chain(COLUMNS.map(|(_, text)| text(trial))));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = format!("{table}\n");
    if report.trials.iter().any(|trial| trial.pending > 0) {
        text.push_str("!  changes had not converged when the trial ended\n");
    }
    for sentence in report.sentences() {
        text.push('\n');
        text.push_str(&textwrap(&sentence));
    }
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Breaks a sentence into lines.
fn textwrap(sentence: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count() + 1;
        if width > 0 && width + length > 110 {
            text.push_str("\n  ");
            width = 2;
        } else if width > 0 {
            text.push(' ');
        }
        text.push_str(word);
        width += length;
    }
    text + "\n"
}

pub(super) fn json(report: &Report<'_>) -> Value {
    serde_json::to_value(report).unwrap_or_else(|error| json!({"error": error.to_string()}))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::trial;
    use super::*;

    #[test]
    fn table_has_a_row_for_each_setting() {
        let trials = [trial(1, 8.0), trial(4, 2.0), Trial { pending: 2, ..trial(8, 2.0) }];
        let dimensions = [Dimension { flag: "workers", values: Vec::new() }];
        let verdict = Verdict::of(&trials, &dimensions, None);
        let report = Report {
            subject: Subject::Load(&Load::default()),
            seed: 1,
            settings: 3,
            trials: &trials,
            verdict,
        };
        let text = table(&report, &dimensions);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("--workers") && lines[0].contains("p99"), "{text}");
        assert!(lines[2].starts_with(" *") && lines[2].contains("2.0 s"), "{text}");
        assert!(lines[3].starts_with(" !"), "{text}");
        assert!(text.contains("Take --workers=4"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 160), "{text}");
        assert_eq!(json(&report)["verdict"]["take"][0]["value"], "4");
    }
}
