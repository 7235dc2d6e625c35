//! `argonaut osd`.
use std::path::Path;
use anyhow::Result;
use env::Random;
use crate::layout::Layout;
/// x
pub fn mkfs_local(_l: &Layout, _c: &conf::ConfFile, _i: u32, _r: &mut dyn Random) -> Result<()> { Ok(()) }
/// x
pub fn main(_conf: &Path, _id: &str, _mkfs: bool, _keyring: Option<&Path>) -> Result<()> { Ok(()) }
