//! Files of a daemon: written whole, and secrets for their owner alone.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file that is there whole or not at all, also after power loss.
///
/// # Errors
/// When it cannot be written.
pub fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("new");
    let mut file = fs::File::create(&temporary).with_context(|| temporary.display().to_string())?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    fs::File::open(path.parent().context("a file has a directory")?)?.sync_all()?;
    Ok(())
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// When it cannot be written.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    write_durably(path, text.as_bytes())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o600))?)
}
