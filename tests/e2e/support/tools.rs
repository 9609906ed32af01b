//! Finds programs that only some cases need: in the cache of `hack/install-tools.sh`, or in the path.

use std::path::PathBuf;

/// Finds a tool. Without it the case is skipped, but not in CI, where only `WINDLASS_WITHOUT` allows that.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = cache.map(|cache| cache.join("windlass/tools"));
    let found = cache.into_iter().chain(std::env::split_paths(&path));
    let found = found.map(|folder| folder.join(name)).find(|program| program.is_file());
    if found.is_none() {
        let without = std::env::var("WINDLASS_WITHOUT").unwrap_or_default();
        let is_excused = without.split_whitespace().any(|excused| excused == name);
        assert!(
            is_excused || std::env::var_os("CI").is_none(),
            "{name} is missing: run hack/install-tools.sh {name}"
        );
        eprintln!("skipped: {name} is missing; hack/install-tools.sh {name} gets it");
    }
    found
}
