//! Compiles programs in C and C++ with the library, and runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for programs, with the library under the names that it is installed by.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

/// How a program is compiled and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// C99, with the shared library.
    C,
    /// C99, with the static library.
    Static,
    /// C++11, with the shared library.
    Cpp,
    /// C99 under the sanitizers of addresses and of undefined behaviour.
    Sanitized,
    /// C99 under valgrind.
    Valgrind,
}

const STRICT: [&str; 6] =
    ["-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L", "-D_DEFAULT_SOURCE"];

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The library of this build, as Cargo names it.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let found = [deps, deps.parent().unwrap()].map(|folder| folder.join(name));
    found.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} was not built"))
}

/// Whether a program can be run here.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// Whether the compiler has the sanitizer of addresses.
fn has_sanitizer() -> bool {
    // Without a folder in front if there is no such file.
    let output = Command::new("cc").arg("-print-file-name=libasan.so").output();
    let found = output.is_ok_and(|output| output.stdout.contains(&b'/'));
    if !found {
        eprintln!("skipped: the compiler has no sanitizer of addresses");
    }
    found
}

pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let link = |from: &str, to: &str| {
            std::os::unix::fs::symlink(built(from), folder.path().join(to)).unwrap();
        };
        link("libfirstflight_capi.so", "libfirstflight.so");
        link("libfirstflight_capi.so", "libfirstflight.so.0");
        link("libfirstflight_capi.a", "libfirstflight.a");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Compiles a program. `None` if there is no compiler.
    pub(crate) fn compile(&self, source: &str, way: Way) -> Option<PathBuf> {
        self.compile_with(source, way, &[])
    }

    /// The same with libraries of others, by their names of pkg-config. `None` if one is not there.
    pub(crate) fn compile_with(&self, source: &str, way: Way, others: &[&str]) -> Option<PathBuf> {
        let mut flags = String::new();
        if !others.is_empty() {
            let output = Command::new("pkg-config").args(["--cflags", "--libs"]).args(others).output();
            let Some(output) = output.ok().filter(|output| output.status.success()) else {
                eprintln!("skipped: pkg-config does not find {others:?}");
                return None;
            };
            flags = String::from_utf8(output.stdout).ok()?;
        }
        let name = Path::new(source).file_stem()?.to_str()?;
        let program = self.path().join(format!("{name}-{way:?}"));
        let compiler = if way == Way::Cpp { "c++" } else { "cc" };
        if !has(compiler) {
            return None;
        }
        if way == Way::Sanitized && !has_sanitizer() {
            return None;
        }
        let mut command = Command::new(compiler);
        match way {
            Way::Cpp => command.args(["-std=c++11", "-x", "c++"]),
            _ => command.arg("-std=c99"),
        };
        command.args(STRICT).args(["-g", "-O1"]);
        if way == Way::Sanitized {
            command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        command.arg("-I").arg(here("include")).arg("-I").arg(here("tests/c")).arg(here(source));
        if way == Way::Cpp {
            command.args(["-x", "none"]);
        }
        match way {
            Way::Static => {
                command.arg(self.path().join("libfirstflight.a")).args([
                    "-lpthread",
                    "-ldl",
                    "-lm",
                    "-lgcc_s",
                ]);
            }
            _ => {
                command.arg("-L").arg(self.path()).args(["-lfirstflight", "-lpthread"]);
            }
        }
        succeed(command.args(flags.split_whitespace()).arg("-o").arg(&program));
        Some(program)
    }

    /// How a program is run. `None` if that cannot be done here.
    pub(crate) fn command(&self, program: &Path, way: Way) -> Option<Command> {
        let mut command = Command::new(program);
        if way == Way::Valgrind {
            if !has("valgrind") {
                return None;
            }
            command = Command::new("valgrind");
            command.args(["-q", "--error-exitcode=99", "--leak-check=full", "--trace-children=yes"]);
            command.args(["--errors-for-leak-kinds=definite,indirect,possible", "--track-fds=no"]);
            command.arg(program);
        }
        Some({
            command.env("LD_LIBRARY_PATH", self.path()).env_remove("FIRSTFLIGHT");
            command
        })
    }
}

/// Runs `test` in a new network namespace that allows Fast Open. False if there can be none.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: making a network namespace needs root");
        return false;
    }
    // The thread is in the namespace, and so is what it starts. The namespace ends with it.
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        if !up.is_ok_and(|status| status.success()) {
            eprintln!("skipped: there is no ip command");
            return false;
        }
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
        test();
        true
    });
    thread.join().unwrap()
}
