//! Gives the command the version that `--version` prints: the package's, and the commit if it is known.

#[path = "build/commit.rs"]
mod commit;

use std::env;
use std::path::Path;

/// Names the commit where there is no checkout: in a container, or for a packager.
const VARIABLE: &str = "FIRSTFLIGHT_COMMIT";

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let (package, directory) = (variable("CARGO_PKG_VERSION"), variable("CARGO_MANIFEST_DIR"));
    // Cargo gives the name of the profile that this one is based on.
    let is_release = variable("PROFILE") == "release";
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let commit = match variable(VARIABLE) {
        given if !given.is_empty() => Some(given),
        _ => commit::find(Path::new(&directory), is_release).map(|found| {
            found.depends_on.iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
            found.to_string()
        }),
    };
    println!("cargo::rustc-env=FIRSTFLIGHT_BUILT_FROM={}", commit.as_deref().unwrap_or_default());
    let about: Vec<_> = commit.into_iter().chain((!is_release).then(|| "debug".to_owned())).collect();
    let version = if about.is_empty() { package } else { format!("{package} ({})", about.join(", ")) };
    println!("cargo::rustc-env=FIRSTFLIGHT_VERSION={version}");
}
