//! Manual pages and shells' completions, made of the commands themselves.

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, ValueEnum};

/// Shells whose completions are made.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Writes `argonaut.1` and a page for each command, `argonaut-rbd-export.1`, to a directory.
///
/// # Errors
/// When a file cannot be written.
pub fn pages(command: Command, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let command = command.version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string())
}

/// Prints what a shell reads to complete the commands.
pub fn completions(mut command: Command, shell: Shell) {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "argonaut", &mut crate::say::out());
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Every command that `--help` lists has a page, and the page names its flags.
    #[test]
    fn each_command_has_its_page() {
        let dir = std::env::temp_dir().join(format!("argonaut-manual-{}", std::process::id()));
        pages(Cli::command(), &dir).unwrap();
        let page = |name: &str| std::fs::read_to_string(dir.join(format!("{name}.1")));
        let mut command = Cli::command();
        command.build();
        for verb in command.get_subcommands().filter(|c| c.get_name() != "help") {
            let found = page(&format!("argonaut-{}", verb.get_name()));
            assert_eq!(found.is_err(), verb.is_hide_set(), "{}", verb.get_name());
        }
        let up = page("argonaut-up").unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(
            up.contains("osd\\-bytes") && up.contains("Start a cluster on this machine"),
            "{up}"
        );
    }
}
