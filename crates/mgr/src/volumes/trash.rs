//! What was removed by a rename is removed in truth, some at a time.

use super::{BASE, Vol, Volumes};

/// Directories to be removed, and links to such in `.trash` of subvolumes.
pub(super) const DIR: &str = "/volumes/_deleting";
/// So many are removed at once.
const AT_ONCE: usize = 4;

impl Volumes {
    /// Begins to remove what is in the trash of a file system.
    pub(super) async fn look_for_trash(&self, vol: &Vol) {
        let Ok(mut dir) = vol.fs.open_dir(DIR).await else { return };
        while let Ok(page) = dir.page().await {
            if page.is_empty() {
                return;
            }
            for entry in page {
                let key = (vol.name.clone(), entry.name.to_vec());
                let mut removals = self.0.removals.borrow_mut();
                if removals.len() >= AT_ONCE {
                    return;
                }
                if !removals.insert(key.clone()) {
                    continue;
                }
                let (this, vol) = (self.clone(), vol.clone());
                tokio::task::spawn_local(async move {
                    let at = [DIR.as_bytes(), b"/", &key.1].concat();
                    if let Err(err) = remove(&vol, &at).await {
                        tracing::warn!("{}: trash: {err}", vol.name);
                    } else {
                        this.0.work.notify_one();
                    }
                    this.0.removals.borrow_mut().remove(&key);
                });
            }
        }
    }
}

async fn remove(vol: &Vol, at: &[u8]) -> fs::Result<()> {
    let stat = match vol.fs.lstat(at).await {
        Err(err) if err.errno() == super::ENOENT => return Ok(()),
        stat => stat?,
    };
    // A link leads to what a subvolume keeps beside its snapshots, and nowhere else.
    let target = String::from_utf8_lossy(&stat.symlink).into_owned();
    let is_own = target.starts_with(&format!("{BASE}/"))
        && target.contains("/.trash/")
        && !target.split('/').any(|name| name == "..");
    if fs::is_symlink(&stat) && is_own {
        vol.fs.remove_tree(&target, || true).await?;
    }
    vol.fs.remove_tree(at, || true).await
}
