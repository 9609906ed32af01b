//! Flags that people know from Kubernetes' components and other operators, and what to give instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Failure;

/// Each flag, with the remedy.
const REMEDIES: &[(&str, &str)] = &[
    ("--master", "The kubeconfig names the server: give --kubeconfig, and --context to choose another."),
    ("--server", "The kubeconfig names the server: give --kubeconfig, and --context to choose another."),
    ("--token", "Put the token into the kubeconfig's user, as token or tokenFile, and give --kubeconfig."),
    ("-v", "Give --log-level=debug, or a filter such as --log-level=windlass::cache=debug."),
    ("--v", "Give --log-level=debug, or a filter such as --log-level=windlass::cache=debug."),
    ("--zap-log-level", "Give --log-level."),
    ("--zap-devel", "Give --log-format=text and --log-level=debug."),
    ("--logging-format", "Give --log-format."),
    ("--all-namespaces", "All namespaces are the default; --namespace limits the operator to some."),
    ("--watch-namespace", "Give --namespace."),
    ("--watch-namespaces", "Give --namespace, with commas between several."),
    ("--concurrency", "Give --workers, or --concurrent-foo-syncs and so on for one controller."),
    ("--threadiness", "Give --workers."),
    ("--max-concurrent-reconciles", "Give --workers."),
    ("--sync-period", "Give --resync-period."),
    ("--min-resync-period", "Give --resync-period."),
    ("--enable-leader-election", "Leader election is on by default; --leader-elect=false turns it off."),
    ("--leader-election", "Leader election is on by default; --leader-elect=false turns it off."),
    ("--leader-election-id", "Give --leader-elect-resource-name."),
    ("--leader-election-namespace", "Give --leader-elect-resource-namespace."),
    ("--leader-elect-resource-lock", "The lock is always a Lease: leave the flag out."),
    ("--metrics-addr", "Give --metrics-bind-address."),
    ("--metrics-port", "Give --metrics-bind-address=:PORT."),
    ("--health-addr", "Give --health-probe-bind-address."),
    ("--feature-gates", "There are no feature gates: leave the flag out."),
    ("--config", "There is no configuration file: give flags, or environment variables WINDLASS_<FLAG>."),
];

/// Returns the failure for an unknown flag that has a remedy here.
pub(super) fn failure(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let (flag, remedy) = REMEDIES.iter().find(|(known, _)| known == flag)?;
    Some(Failure::Usage { cause: format!("unknown flag {flag}"), remedy: (*remedy).to_owned() })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::Cli;
    use super::*;

    #[test]
    fn each_foreign_flag_has_a_remedy() {
        for (flag, remedy) in REMEDIES {
            let error = Cli::try_parse_from(["windlass", "run", flag]).unwrap_err();
            let failure = failure(&error).unwrap_or_else(|| panic!("{flag}: {error}"));
            assert!(failure.to_string().contains(flag));
            let command = Cli::command();
            let run = command.find_subcommand("run").unwrap();
            for named in remedy.split_whitespace().filter(|word| word.starts_with("--")) {
                let name = named.trim_start_matches("--").split(['=', ',', ';', '.', ':']).next().unwrap();
                assert!(run.get_arguments().any(|arg| arg.get_long() == Some(name)), "{flag}: {named}");
            }
        }
    }

    #[test]
    fn an_unheard_of_flag_is_left_to_clap() {
        let error = Cli::try_parse_from(["windlass", "run", "--no-such-flag"]).unwrap_err();
        assert!(failure(&error).is_none());
    }
}
