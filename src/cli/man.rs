//! `windlass man`: manual pages, made from what `--help` prints.
//!
//! - Each command has a page, which names its flags and their variables (test: `each_subcommand_has_a_page`).
//! - The pages of one version are the same wherever they are made: they have no date.

use std::io;
use std::path::{Path, PathBuf};

use clap_mangen::Man;

use super::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
windlass man ~/.local/share/man/man1
man windlass-run")]
pub(super) struct Args {
    /// The directory to write `windlass.1` and a page for each command to; it is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &Args, program: clap::Command) -> Result<(), Failure> {
    write(program, &args.directory).map_err(|error| Failure::Usage {
        cause: format!("could not write the pages to {}: {error}", args.directory.display()),
        remedy: "Give a directory that you may write to, for example: windlass man target/man".to_owned(),
    })
}

fn write(program: clap::Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    // `help` is a command, too, and would have a page for each of the others.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    for command in with_subcommands(&program) {
        let source = concat!("windlass ", env!("CARGO_PKG_VERSION"));
        Man::new(command.clone()).source(source).manual("Windlass").generate_to(directory)?;
    }
    Ok(())
}

/// Returns a command and all commands below it, without the hidden ones.
fn with_subcommands(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(with_subcommands);
    std::iter::once(command).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The paths of all commands, in words joined by hyphens, as pages are named.
    fn names(command: &clap::Command, before: &str) -> Vec<String> {
        let name = format!("{before}{}", command.get_name());
        let below = command.get_subcommands().flat_map(|below| names(below, &format!("{name}-")));
        std::iter::once(name.clone()).chain(below).collect()
    }

    #[test]
    fn each_subcommand_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("not/there/yet");
        write(Cli::command(), &pages).unwrap();
        let mut wanted = names(&Cli::command(), "");
        wanted.sort();
        assert!(wanted.len() > 8 && wanted.contains(&"windlass-tune-sweep".to_owned()), "{wanted:?}");
        let files = fs::read_dir(&pages).unwrap().map(|file| file.unwrap().file_name());
        let mut written: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        written.sort();
        let mut named: Vec<String> = wanted.iter().map(|name| format!("{name}.1")).collect();
        named.sort();
        assert_eq!(written, named);
        for name in &wanted {
            let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
            let source = format!("\"windlass {}\"", env!("CARGO_PKG_VERSION"));
            assert!(page.contains(&format!(".TH {name} 1")) && page.contains(&source), "{page}");
        }
        let run = fs::read_to_string(pages.join("windlass-run.1")).unwrap();
        assert!(run.contains("WINDLASS_CONTROLLERS") && run.contains("shutdown\\-timeout"), "{run}");
    }

    #[test]
    fn unwritable_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let failure = run(&Args { directory: file.clone() }, Cli::command()).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains(file.to_str().unwrap()), "{failure}");
    }
}
