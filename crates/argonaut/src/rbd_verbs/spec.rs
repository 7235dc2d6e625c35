//! Names of images on the command line.

use std::convert::Infallible;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rados::{Cluster, IoCtx};

/// The pool where none is named.
const POOL: &str = "rbd";

/// `[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The pool, when one is named.
    pub pool: Option<String>,
    /// Its namespace.
    pub nspace: String,
    /// The image.
    pub image: String,
    /// Its snapshot.
    pub snap: Option<String>,
}

impl FromStr for Spec {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (place, snap) = match text.split_once('@') {
            Some((place, snap)) => (place, Some(snap.to_owned())),
            None => (text, None),
        };
        let mut parts = place.splitn(3, '/').map(str::to_owned);
        let parts = [parts.next(), parts.next(), parts.next()];
        let (pool, nspace, image) = match parts {
            [Some(pool), Some(nspace), Some(image)] => (Some(pool), nspace, image),
            [Some(pool), Some(image), None] => (Some(pool), String::new(), image),
            [image, ..] => (None, String::new(), image.unwrap_or_default()),
        };
        Ok(Self { pool, nspace, image, snap })
    }
}

impl Spec {
    /// The pool's name.
    pub fn pool(&self) -> &str {
        self.pool.as_deref().unwrap_or(POOL)
    }

    /// The image's pool and namespace.
    pub async fn io(&self, cluster: &Cluster) -> Result<IoCtx> {
        Ok(cluster.pool(self.pool()).await?.namespace(self.nspace.clone()))
    }

    /// For what a snapshot makes no sense of.
    pub fn plain(&self) -> Result<&Self> {
        match &self.snap {
            None => Ok(self),
            Some(snap) => bail!("an image is meant here, not its snapshot '{snap}'"),
        }
    }

    /// For what needs a snapshot.
    pub fn snap(&self) -> Result<&str> {
        self.snap.as_deref().with_context(|| format!("name a snapshot: {}@SNAPSHOT", self.image))
    }
}

/// POOL or POOL/NAMESPACE.
pub async fn pool(cluster: &Cluster, text: &str) -> Result<IoCtx> {
    let (pool, nspace) = text.split_once('/').unwrap_or((text, ""));
    Ok(cluster.pool(pool).await?.namespace(nspace.as_bytes().to_vec()))
}

/// As it would be written on the command line.
pub fn full_name(pool: &str, nspace: &str, image: &str) -> String {
    if nspace.is_empty() { format!("{pool}/{image}") } else { format!("{pool}/{nspace}/{image}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        assert_eq!(spec("disk").pool(), "rbd");
        let full = spec("p/n/disk@s");
        assert_eq!((full.pool(), &full.nspace[..], &full.image[..]), ("p", "n", "disk"));
        assert_eq!(full.snap().unwrap(), "s");
        assert_eq!(spec("p/disk").image, "disk");
        assert!(spec("p/disk").snap().is_err());
        assert!(spec("disk@s").plain().is_err());
    }
}
