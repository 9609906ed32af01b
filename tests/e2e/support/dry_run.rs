//! `windlass run --dry-run`: a process on the real bed, a call on the embedded one.

use std::path::Path;

use kube_client::Client;
use windlass::client::ApiClient;

use super::canary::clean;
use super::embedded::seed;
use super::program;

/// A dry run that has ended.
#[derive(Clone, Debug)]
pub(crate) struct DryRun {
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) report: String,
    /// Standard error, or the error that the process would end with.
    pub(crate) error: String,
}

impl DryRun {
    pub(super) async fn of_program(kubeconfig: &Path, flags: &[&str]) -> Self {
        let mut command = program();
        command.args(["run", "--dry-run"]).arg(format!("--kubeconfig={}", kubeconfig.display())).args(flags);
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        let output = ended.expect("the task ends").expect("the program runs");
        let text = |bytes: &[u8]| clean("a dry run", String::from_utf8_lossy(bytes).into_owned());
        Self { code: output.status.code(), report: text(&output.stdout), error: text(&output.stderr) }
    }

    pub(super) async fn in_process(client: Client, flags: &[&str]) -> Self {
        let (code, report, error) =
            match windlass::cli::dry_run_over(ApiClient::new(client), flags, seed()).await {
                Ok((code, report)) => (code, report, String::new()),
                Err((code, error)) => (code, String::new(), error),
            };
        Self { code: Some(code.into()), report: clean("a dry run", report), error: clean("a dry run", error) }
    }

    /// Asserts the exit code, and that the report has each of these lines.
    #[track_caller]
    pub(crate) fn reports(&self, code: i32, lines: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for expected in lines {
            let has_line = self.report.lines().any(|line| line.trim() == *expected);
            assert!(has_line, "{expected:?} is no line of:\n{}\n{}", self.report, self.error);
        }
    }
}
