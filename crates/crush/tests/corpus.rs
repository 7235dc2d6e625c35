//! The peer's object corpus: what it wrote is read, and written again byte for byte.
//!
//! `ARGONAUT_CORPUS` names a directory laid out as `VERSION/objects/CrushWrapper/HASH`.

use crush::CrushMap;
use denc::{Denc, Features};

#[test]
fn corpus() {
    let Ok(root) = std::env::var("ARGONAUT_CORPUS") else {
        eprintln!("skipped: ARGONAUT_CORPUS is not set");
        return;
    };
    if !std::path::Path::new(&root).is_dir() {
        eprintln!("skipped: ARGONAUT_CORPUS is not a directory");
        return;
    }
    let mut seen = 0;
    for version in std::fs::read_dir(&root).unwrap() {
        let dir = version.unwrap().path().join("objects/CrushWrapper");
        let Ok(objects) = std::fs::read_dir(&dir) else { continue };
        for object in objects {
            let path = object.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let map = match CrushMap::from_bytes(&bytes) {
                Ok(map) => map,
                Err(e) => panic!("{}: {e}", path.display()),
            };
            // Which features the writer had shows only in what it wrote.
            let words = [
                Features::ALL,
                Features::TENTACLE_WORD,
                Features::REEF_WORD,
                Features::PACIFIC_WORD,
            ];
            let again = words.iter().any(|f| map.to_bytes_for(*f) == bytes);
            assert!(again, "{}: written otherwise", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no CrushWrapper in {root}");
    eprintln!("{seen} objects");
}
